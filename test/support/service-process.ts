/** Sets up a process that runs service tests: once, although the process runs many files. */
import { DefaultLogger, Runtime } from '@temporalio/worker';

const begun = Symbol.for('palimpsest.service-process');

if (!Reflect.has(globalThis, begun)) {
  Reflect.set(globalThis, begun, true);

  // Workflows run in the thread of their worker; otherwise each worker starts two threads, which takes half a second of CPU
  // time. Processes that tests start do use these threads.
  process.env['TEMPORAL_DEBUG'] = '1';

  // The SDK's log would hide the output of tests; failures are asserted, not read.
  Runtime.install({ logger: new DefaultLogger('ERROR') });

  // If vitest is killed, its workers would run on, so this process ends itself when its parent has changed. The channel closes
  // a moment before that.
  const { ppid } = process;
  process.once('disconnect', () => {
    setTimeout(() => process.ppid !== ppid && process.kill(process.pid, 'SIGKILL'), 1_000).unref();
  });
}
