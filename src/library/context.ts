import { currentCaller } from '../store/connection/caller.js';
import type { ContextRequest } from '../contract/client.js';
import { contextFormatOf } from '../formats/index.js';
import { checkContextRequest, type SessionContext } from '../contract/context.js';
import { fitted } from './session-context.js';
import { inSlices } from '../steps.js';
import { readContextLocked, readContextSource } from '../store/compactions/context.js';
import { saveReductions } from '../store/compactions/reductions.js';
import type { SessionIds } from '../contract/ids.js';
import type { Connections } from './connections.js';
import { compactionEnded } from './waiting.js';

/** How often a context is read without a lock although commits and other readers overtake it; then it takes one. */
const lockFreeReads = 3;

/** One statement, unless the context has to be cut to its budget anew. */
export async function readContext(
  { pool, watch }: Connections,
  ids: SessionIds,
  { format, budget, waitMs = 0 }: Omit<ContextRequest, 'session'>,
): Promise<SessionContext> {
  if (format !== undefined) contextFormatOf(format);
  checkContextRequest({ budget, waitMs });
  if (waitMs > 0) await compactionEnded({ pool, watch }, ids, waitMs);
  const key = budget ?? 'own';
  const fit = (found: Parameters<typeof fitted>[1]) =>
    inSlices(fitted(ids.session, found, { format, budget }), currentCaller()?.signal);
  for (let attempt = 1; attempt <= lockFreeReads; attempt++) {
    const found = await readContextSource(pool, ids, key);
    const { context, budget: within, reductions } = await fit(found);
    if (reductions.length === 0) return context;
    // Stored when first applied, so that every later read until the next commit starts with the same prefix.
    const seen = found.source.reductions.length;
    const { generation } = found.session;
    if (await saveReductions(pool, found.session, { generation, seen, budget: within, reductions }))
      return context;
  }
  return (await readContextLocked(pool, ids, key, fit)).context;
}
