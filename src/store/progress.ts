/** What a session learns of itself from a turn: the mean size of its turns, and how our counts compare with its provider's. */
import { invalid } from '../errors.js';
import { meanTurn } from '../policy/mean-turn.js';
import type { Policy } from '../policy/schema.js';
import { calibrated, calibrationKey, type ReportedUsage } from '../tokens/calibration.js';
import { counterFor } from '../tokens/counter.js';
import { countOverhead } from '../tokens/overhead.js';
import { factsOf, type SessionRow } from './session-row.js';
import { recalibrated, settingsIfValid } from './settings.js';
import { checkId } from './text.js';
import type { Transaction } from './transaction.js';

/** A compaction that was committed this shortly before the previous turn may have waited for it. */
const COMMIT_MARGIN = '5 seconds';

export interface CountedTurn {
  /** Of each message, with the session's tokenizer. */
  tokens: readonly number[];
  roles: readonly string[];
  usage?: ReportedUsage;
}

/** Throws `Input.Invalid` with the path of the field. */
export function checkUsage(usage: ReportedUsage): ReportedUsage {
  for (const field of ['inputTokens', 'outputTokens'] as const) {
    const tokens: unknown = usage[field];
    if (typeof tokens === 'number' && Number.isSafeInteger(tokens) && tokens >= 0) continue;
    throw invalid(
      `usage.${field} must be a whole number of tokens, not ${JSON.stringify(tokens)}`,
      `usage.${field}`,
      'Give what the provider reported for the request that made the first assistant message of this turn, cached tokens included.',
    );
  }
  const { inputTokens, outputTokens, model } = usage;
  if (model === undefined) return { inputTokens, outputTokens };
  checkId(model, 'usage.model');
  return { inputTokens, outputTokens, model };
}

/**
 * The row as this turn leaves it, apart from its counters of messages: a running mean, the calibration, and where the
 * factor in use was off, budget, marks and a new policy version. `session` is the locked row as it was before.
 */
export async function progressed(
  tx: Transaction,
  session: SessionRow,
  policy: Policy,
  turn: CountedTurn,
): Promise<SessionRow> {
  const size = turn.tokens.reduce((sum, tokens) => sum + tokens, 0);
  const row = {
    ...session,
    turns: session.turns + 1,
    meanTurnTokens: meanTurn({ turns: session.turns, mean: session.meanTurnTokens }, size),
  };
  const request = requestSizes(row, policy, turn);
  if (request !== null && !(await hasMoved(tx, session))) {
    const key = calibrationKey(turn.usage?.model ?? policy.model, session.tokenizer);
    row.calibration = calibrated(row.calibration, key, request);
  }
  const settings = recalibrated(policy, row);
  // While exhausted, the marks lie where something compactable will have arrived.
  const marksHold = row.exhausted !== null;
  if (settings) {
    const { budget, appliedFactor, measureAtTokens, measureAtMessages } = settings;
    Object.assign(row, { budget, appliedFactor, policyVersion: row.policyVersion + 1 });
    if (!marksHold) Object.assign(row, { measureAtTokens, measureAtMessages });
  } else if (policy.economic && !marksHold) {
    // The cost-optimal size follows the mean turn.
    const follow = settingsIfValid(row.policy, factsOf(row), row.liveTokens);
    if (follow) row.measureAtTokens = follow.measureAtTokens;
  }
  return row;
}

/**
 * The request that made the first assistant message of the turn, in our tokens and in its provider's: the context, what
 * the turn holds before that message, and an overhead that was given as texts. An overhead given as a number is the
 * provider's already. Null where there was no such request, or where the context was cut to the budget on the way.
 */
function requestSizes(
  { liveTokens, budget, tokenizer }: SessionRow,
  policy: Policy,
  { tokens, roles, usage }: CountedTurn,
): { counted: number; reported: number } | null {
  const answer = roles.indexOf('assistant');
  if (!usage || !policy.calibration || answer === -1) return null;
  const context = tokens.slice(0, answer).reduce((sum, size) => sum + size, liveTokens);
  if (policy.enabled && context > budget) return null;
  const { overhead } = policy;
  if (typeof overhead === 'number') return { counted: context, reported: usage.inputTokens - overhead };
  return { counted: context + countOverhead(overhead, counterFor(tokenizer)), reported: usage.inputTokens };
}

/** Whether a compaction came between the previous turn and this one: the request may have held what it replaced. */
async function hasMoved({ query }: Transaction, session: SessionRow): Promise<boolean> {
  if (session.generation === 0) return false;
  const [found] = await query<{ moved: boolean }>(
    `select head.created_at > coalesce(
       (select created_at from palimpsest.turns
        where tenant_id = $1 and session_id = $2 and from_seq < $4 order by from_seq desc limit 1)
       - $5::interval, '-infinity') as moved
     from palimpsest.compactions head where tenant_id = $1 and session_id = $2 and generation = $3`,
    [session.tenant, session.session, session.generation, session.nextSeq, COMMIT_MARGIN],
  );
  return found?.moved ?? true;
}
