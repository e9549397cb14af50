/**
 * A process that runs command lines one after another. It receives them over IPC and returns the output and exit code of each.
 * The code is loaded only once, which saves most of the time of a short command.
 */
import { runCommandLine } from '../../src/cli/program.js';

export interface CommandLine {
  number: number;
  args: readonly string[];
  env: NodeJS.ProcessEnv;
}

export interface CommandEnded {
  number: number;
  code: number;
  stdout: string;
  stderr: string;
}

const streams = ['stdout', 'stderr'] as const;

async function run({ number, args, env }: CommandLine): Promise<CommandEnded> {
  const ended: CommandEnded = { number, code: 1, stdout: '', stderr: '' };
  const putBack = [process, process.stdout, process.stderr].map(listenersOf);
  process.env = { ...env };
  process.argv.splice(2, Infinity, ...args);
  for (const name of streams)
    process[name].write = (text: string | Uint8Array, ...more: unknown[]) => {
      ended[name] += typeof text === 'string' ? text : Buffer.from(text).toString();
      const done = more.at(-1);
      if (typeof done === 'function') process.nextTick(done);
      return true;
    };
  try {
    ended.code = await runCommandLine();
  } catch (error) {
    ended.stderr += String(error);
  }
  for (const put of putBack) put();
  return ended;
}

/** Returns a function that removes the listeners added since this call. */
function listenersOf(emitter: NodeJS.EventEmitter): () => void {
  const before = new Map(emitter.eventNames().map((name) => [name, emitter.listeners(name)]));
  return () => {
    for (const name of emitter.eventNames())
      for (const listener of emitter.listeners(name))
        if (!before.get(name)?.includes(listener)) emitter.off(name, listener as () => void);
  };
}

let last = Promise.resolve();
process.on('message', (line: CommandLine) => {
  last = last.then(async () => void process.send?.(await run(line)));
});
process.on('disconnect', () => process.exit());
