export { ahead } from './ahead.js';
export { backfill } from './backfill.js';
export { compaction } from './compaction.js';
export { session } from './session.js';
export { sweep } from './sweep.js';
