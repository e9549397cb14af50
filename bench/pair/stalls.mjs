/** Loaded into a process and its threads with `--import`: writes to the file STALLS how long each event loop was held. */
import { appendFileSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';

const file = process.env['STALLS'];
const everyMs = 10;
let last = performance.now();

/** A hold shorter than this is not of interest. */
const leastMs = 20;

setInterval(() => {
  const now = performance.now();
  const ms = now - last - everyMs;
  last = now;
  if (file === undefined || ms < leastMs) return;
  const at = performance.timeOrigin + now;
  appendFileSync(file, `${JSON.stringify({ loop: isMainThread ? 'main' : 'thread', at, ms })}\n`);
}, everyMs).unref();
