import { createHash } from 'node:crypto';
import { fittingMemory } from '../summary/fit.js';
import { breakdownOf } from '../context/view/breakdown.js';
import { arrangeNative, shownUnits } from '../formats/native.js';
import type { ContextSource, Head, Reduction, ViewItem } from '../context/view/view.js';
import { jsonTexts } from '../conversation/json-texts.js';
import type { ChatMessage, Json, LoggedMessage } from '../conversation/message.js';
import { limitsOf } from '../limits/limits.js';
import type { ShownUnit } from '../formats/format.js';
import { contextFormatOf, formatOf } from '../formats/index.js';
import type { ContextFormat } from '../conversation/format-names.js';
import { policyOf } from '../policy/layers.js';
import { factsOf, type SessionRow } from '../store/sessions/session-row.js';
import { counterFor } from '../tokens/counter.js';
import { currentCaller } from '../store/connection/places.js';
import type { ContextRequest } from '../contract/client.js';
import type { ContextShape, SessionContext } from '../contract/context.js';
import { inSlices, type Steps } from '../steps.js';
import { readContextLocked, readContextSource } from '../store/reading/context.js';
import { saveReductions } from '../store/compactions/reductions.js';
import type { SessionIds } from '../contract/ids.js';
import type { Connections } from './connections.js';
import { compactionEnded } from './waiting.js';

/** Number of reads without a lock that commits and other readers may overtake. The next read takes a lock. */
const lockFreeReads = 3;

/** Maximum bytes of the messages of which a context is made, if no turn may have more than half of them. */
const mostContextBytes = 64 * 1024 * 1024;

/** Reads the context with one statement, unless it needs new reductions to fit its budget. */
export async function readContext(
  connections: Connections,
  ids: SessionIds,
  request: Omit<ContextRequest, 'session'>,
): Promise<SessionContext> {
  return (await readContextOf(connections, ids, request)).context;
}

/** A context, its JSON in pieces, the units that it shows, and the session as it was then. `whole`: see {@link wholeLog}. */
export interface FoundContext {
  context: SessionContext;
  pieces: string[];
  units: ShownUnit[];
  whole: readonly LoggedMessage[] | null;
  session: SessionRow;
}

export async function readContextOf(
  { pool, watch, turnLimits }: Connections,
  ids: SessionIds,
  { format, budget, waitMs = 0 }: Omit<ContextRequest, 'session'>,
): Promise<FoundContext> {
  if (waitMs > 0) await compactionEnded({ pool, watch }, ids, waitMs);
  const key = budget ?? 'own';
  const mostBytes = Math.max(mostContextBytes, 2 * turnLimits.maxBytes);
  const fit = (found: Parameters<typeof fitted>[1]) =>
    inSlices(fitted(ids.session, found, { format, budget }), currentCaller()?.signal);
  for (let attempt = 1; attempt <= lockFreeReads; attempt++) {
    const found = await readContextSource(pool, ids, key, mostBytes);
    const { budget: within, reductions, ...made } = await fit(found);
    const { session } = found;
    if (reductions.length === 0) return { ...made, session };
    // Reductions are stored when they are first applied, so that every later read until the next commit starts with
    // the same prefix.
    const seen = found.source.reductions.length;
    const { generation } = session;
    if (await saveReductions(pool, session, { generation, seen, budget: within, reductions }))
      return { ...made, session };
  }
  return readContextLocked(pool, ids, key, mostBytes, async (found) => ({
    ...(await fit(found)),
    session: found.session,
  }));
}

/**
 * Returns the context within its budget, and the reductions that it needs in addition to the stored ones. Works in
 * steps, because 100,000 messages take seconds.
 * @internal Tests fit contexts that no database holds.
 */
export function* fitted(
  name: string,
  { session, source }: { session: SessionRow; source: ContextSource },
  { format = formatOf(session.format).contextFormat, budget: own }: ContextShape = {},
): Steps<{
  context: SessionContext;
  pieces: string[];
  units: ShownUnit[];
  whole: readonly LoggedMessage[] | null;
  budget: number;
  reductions: Reduction[];
}> {
  const policy = policyOf(session.policy);
  const limits = limitsOf(policy, factsOf(session));
  const budget = own ?? limits.budget;
  const counter = counterFor(limits.tokenizer);
  const logged = new Map<number, LoggedMessage>(
    [...source.system, ...source.tail].map((message) => [message.seq, message]),
  );
  // Formats other than openai-chat merge neighbouring messages of one role themselves, so that the originals stay unchanged.
  const arrange = (view: readonly ViewItem[]) => arrangeNative(view, logged, format, counter);
  const fit = yield* fittingMemory(source, policy, limits, counter, {
    ...(own === undefined ? {} : { budget: own }),
    ...(format === 'openai-chat' ? {} : { arrange }),
  });
  const sizes = { budget, window: limits.window };
  const context = contextOf(name, session, fit.items, fit.layout, sizes);
  // Reductions are stored and read under the budget in the session's row.
  const key = own ?? session.budget;
  const units = format === 'openai-chat' ? fit.items.map(chatUnit) : shownUnits(fit.items, logged, format);
  return {
    ...(yield* inFormat(context, units, format)),
    units,
    whole: wholeLog(source, fit.reductions),
    budget: key,
    reductions: fit.reductions,
  };
}

/** The messages of the log, if the context has every one of them, none shortened; else null. */
function wholeLog(
  { system, head, tail, reductions }: ContextSource,
  added: readonly Reduction[],
): readonly LoggedMessage[] | null {
  return head === null && reductions.length + added.length === 0 ? [...system, ...tail] : null;
}

function chatUnit({ message, fromSeq, source, joined }: ViewItem): ShownUnit {
  const isOriginal = joined === undefined && /^(?:log|system|carried)$/.test(source);
  const items = isOriginal ? [message as unknown as Json] : null;
  return { items, messages: [message], ...(fromSeq > 0 ? { seq: fromSeq } : {}) };
}

function* inFormat(
  context: Omit<SessionContext, 'etag'>,
  units: readonly ShownUnit[],
  format: ContextFormat,
): Steps<{ context: SessionContext; pieces: string[] }> {
  const rendered =
    format === 'openai-chat' ? { messages: context.messages } : contextFormatOf(format).render(units);
  yield;
  const shown = { ...context, format, ...(rendered as { messages: ChatMessage[]; system?: Json }) };
  const { etag, pieces } = yield* written(shown);
  return { context: { ...shown, etag }, pieces };
}

/** Length from which a piece of JSON is complete, in characters. */
const pieceLength = 64 * 1024;

/** The tag of a context and its JSON, tag included. The tag is a hash of the JSON without it. */
function* written(shown: Omit<SessionContext, 'etag'>): Steps<{ etag: string; pieces: string[] }> {
  const hash = createHash('sha256');
  const pieces: string[] = [];
  let piece = '';
  for (const text of jsonTexts(shown)) {
    if (piece.length >= pieceLength) {
      hash.update(piece);
      pieces.push(piece);
      piece = '';
      yield;
    }
    piece += text;
  }
  const etag = hash.update(piece).digest('hex').slice(0, 32);
  pieces.push(`${piece.slice(0, -1)},"etag":"${etag}"}`);
  return { etag, pieces };
}

function contextOf(
  session: string,
  { generation }: SessionRow,
  view: readonly ViewItem[],
  layout: Head['layout'],
  { budget, window }: { budget: number; window: number },
): Omit<SessionContext, 'etag'> {
  const messages = view.map(({ message }) => message);
  const tokens = view.reduce((sum, item) => sum + item.tokens, 0);
  return {
    session,
    generation,
    format: 'openai-chat',
    messages,
    entries: view.map(({ fromSeq, source, tokens: size }) => ({
      seq: fromSeq === 0 ? null : fromSeq,
      source,
      tokens: size,
    })),
    tokens,
    breakdown: breakdownOf(view, layout),
    budget,
    window,
  };
}
