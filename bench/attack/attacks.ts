/** Attacks by name. Each attack has its own file and a row in the table at the end. */
import { body } from './body.js';
import { pattern } from './pattern.js';
import { searches } from './searches.js';
import { settled } from './settled.js';
import { slowSockets } from './slow-sockets.js';
import { stoppedWorker } from './stopped-worker.js';
import type { Attack } from './target.js';

export const attacks: Readonly<Record<string, Attack>> = {
  body,
  pattern,
  'slow-sockets': slowSockets,
  searches,
  settled,
  'stopped-worker': stoppedWorker,
};
