/**
 * The values that a session learns from an appended turn: the mean size of its turns, and the ratio of the provider's counts to
 * the stored ones.
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
const commitMargin = "interval '5 seconds'";

/** Null if nothing was reported. Throws `Input.Invalid` with the path of the field. */
export function checkUsage(report: unknown): ReportedUsage | null {
  const usage = (report ?? null) === null ? null : readUsage(report);
  if (usage?.model !== undefined) checkId(usage.model, 'usage.model', 'stored');
  return usage;
}

/**
 * Returns the row with what this turn changes: the running mean, the calibration and, if the present sizes were wrong, the
 * budget, `measureAt…` and a new policy version. The caller updates the counters of messages. `session` is the locked row
 * before the turn, and `moved` says of it what `hasMoved` does.
 */
export async function progressed(
  session: SessionRow,
  policy: Policy,
  turn: ReportedTurn,
  moved: () => boolean | Promise<boolean>,
): Promise<SessionRow> {
  const size = turn.tokens.reduce((sum, tokens) => sum + tokens, 0);
  const row = {
    ...session,
    turns: session.turns + 1,
    meanTurnTokens: meanTurn({ turns: session.turns, mean: session.meanTurnTokens }, size),
  };
  const request = requestOf(turn, policy, session);
  if (request !== null && (turn.usage?.countedTokens !== undefined || !(await moved()))) {
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
 * Whether a compaction came between the previous turn and this one. If so, the request that the usage belongs to may still have
 * contained the replaced messages.
 */
export async function hasMoved({ query }: Transaction, session: SessionRow): Promise<boolean> {
  if (session.generation === 0) return false;
  const { tenant, session: name, generation, nextSeq } = session;
  const statement = `select ${movedSince('$1', '$2', '$3', previousTurnAt('$1', '$2', '$4'))} as moved`;
  const [found] = await query<{ moved: boolean | null }>(statement, [tenant, name, generation, nextSeq]);
  return found?.moved ?? true;
}

/** An expression: when the turn before this seq was stored. */
export const previousTurnAt = (tenant: string, session: string, nextSeq: string): string =>
  `(select last.created_at from palimpsest.turns last where last.tenant_id = ${tenant} and last.session_id = ${session}
    and last.from_seq < ${nextSeq} order by last.from_seq desc limit 1)`;

/** An expression: whether this generation was committed after a turn of that time, or shortly before. */
export const movedSince = (tenant: string, session: string, generation: string, turnAt: string): string =>
  `(select head.created_at > coalesce(${turnAt} - ${commitMargin}, '-infinity') from palimpsest.compactions head
    where head.tenant_id = ${tenant} and head.session_id = ${session} and head.generation = ${generation})`;
