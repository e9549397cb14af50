import type { Operation } from './operation.js';
import { archive } from './archive.js';
import { backfills } from './backfills.js';
import { policies, sessions } from './sessions.js';
import { tokens } from './tokens.js';
import { turns } from './turns.js';

/** All operations under `/v1`, in the order of the document. */
export const operations: readonly Operation[] = [
  ...turns,
  ...sessions,
  ...policies,
  ...archive,
  ...backfills,
  ...tokens,
];
