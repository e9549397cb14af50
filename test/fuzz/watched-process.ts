/**
 * Runs a command of the product, and tells its parent every second the longest time that its event loop stood still, and what
 * nobody handled.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks';

const delay = monitorEventLoopDelay({ resolution: 10 });
delay.enable();
const tell = (message: object) => process.send?.(message);

process.on('unhandledRejection', (reason) =>
  tell({ unhandled: reason instanceof Error ? reason.stack : String(reason) }),
);
process.on('uncaughtExceptionMonitor', (error) => tell({ unhandled: error.stack }));
setInterval(() => {
  tell({ stalledMs: Math.round(delay.max / 1e6) });
  delay.reset();
}, 1_000).unref();

await import('../../src/cli/main.js');
