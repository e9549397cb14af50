/**
 * The measurements that a session takes from a turn: the mean size of its turns, and the ratio of the provider's
 * counts to the stored ones.
 */
import { meanTurn, type ReportedTurn, requestOf } from '../../limits/learnt.js';
import type { Policy } from '../../policy/defaults.js';
import { calibrated, calibrationKey } from '../../tokens/calibration.js';
import { readUsage, type ReportedUsage } from '../../tokens/reported-usage.js';
import { factsOf, type SessionRow } from '../sessions/session-row.js';
import { recalibrated, settingsIfValid } from '../sessions/settings.js';
import { checkId } from '../../contract/ids.js';
import type { Transaction } from '../connection/transaction.js';

/** A compaction that was committed this shortly before the previous turn may have waited for that turn. */
const COMMIT_MARGIN = '5 seconds';

/** Null if nothing was reported. Throws `Input.Invalid` with the path of the field. */
export function checkUsage(report: unknown): ReportedUsage | null {
  const usage = (report ?? null) === null ? null : readUsage(report);
  if (usage?.model !== undefined) checkId(usage.model, 'usage.model', 'stored');
  return usage;
}

/**
 * Returns the row after this turn, except for its counters of messages: a running mean, the calibration, and, if the present
 * sizes were wrong, budget, `measureAt…` and a new policy version. `session` is the locked row before the turn.
 */
export async function progressed(
  tx: Transaction,
  session: SessionRow,
  policy: Policy,
  turn: ReportedTurn,
): Promise<SessionRow> {
  const size = turn.tokens.reduce((sum, tokens) => sum + tokens, 0);
  const row = {
    ...session,
    turns: session.turns + 1,
    meanTurnTokens: meanTurn({ turns: session.turns, mean: session.meanTurnTokens }, size),
  };
  const request = requestOf(turn, policy, session);
  if (request !== null && !(await hasMoved(tx, session))) {
    const key = calibrationKey(turn.usage?.model ?? policy.model, session.tokenizer);
    row.calibration = calibrated(row.calibration, key, request);
  }
  const settings = recalibrated(policy, row);
  // In an exhausted session, `measureAt…` is the size at which the context will contain messages that can be compacted.
  const marksHold = row.exhausted !== null;
  if (settings) {
    const { budget, appliedFactor, appliedOverhead, measureAtTokens, measureAtMessages } = settings;
    const policyVersion = row.policyVersion + 1;
    Object.assign(row, { budget, appliedFactor, appliedOverhead, policyVersion });
    if (!marksHold) Object.assign(row, { measureAtTokens, measureAtMessages });
  } else if (policy.economic && !marksHold) {
    // The cost-optimal size follows the mean turn.
    const follow = settingsIfValid(row.policy, factsOf(row), row.liveTokens);
    if (follow) row.measureAtTokens = follow.measureAtTokens;
  }
  return row;
}

/**
 * Whether a compaction came between the previous turn and this one. The request may then have contained the replaced
 * messages.
 */
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
