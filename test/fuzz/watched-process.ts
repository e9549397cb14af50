/**
 * Runs a command of the product, and tells its parent every second how long its event loop was busy without a pause, and what
 * nobody handled.
 */
import { Stopwatch } from './stopwatch.js';

const stepMs = 10;
const tell = (message: object) => process.send?.(message);

process.on('unhandledRejection', (reason) =>
  tell({ unhandled: reason instanceof Error ? reason.stack : String(reason) }),
);
process.on('uncaughtExceptionMonitor', (error) => tell({ unhandled: error.stack }));

let busyMs = 0;
let watch = new Stopwatch();
setInterval(() => {
  busyMs = Math.max(busyMs, watch.busyMs());
  watch = new Stopwatch();
}, stepMs).unref();
setInterval(() => {
  tell({ stalledMs: Math.round(busyMs) });
  busyMs = 0;
}, 1_000).unref();

await import('../../src/cli/main.js');
