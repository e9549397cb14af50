import { programName } from '../../runtime/program.js';
import { isFailureType, PalimpsestError, type FailureType } from '../../errors.js';

export interface ErrorShape {
  type: string;
  message: string;
  path?: string;
  hint?: string;
}

/** A failure as text for people: the fault, its place, and the next step. */
export function errorLines(error: unknown): string[] {
  const { type, message, path, hint } = errorShape(error);
  const where = path !== undefined && !message.includes(path) ? ` (${path})` : '';
  return [`${type}: ${message}${where}`, ...(hint === undefined ? [] : [`  ${hint}`])];
}

export const errorJson = (session: string, error: unknown): string =>
  JSON.stringify({ session, error: errorShape(error) });

/** The `--json` output in place of a result, or after the part of the result that was printed already. */
export const failureJson = (error: unknown): string => JSON.stringify({ error: errorShape(error) });

/**
 * A failure as JSON for scripts. An error other than a `PalimpsestError` is a defect of this program and has the type
 * `Internal`.
 */
function errorShape(error: unknown): ErrorShape {
  if (!(error instanceof PalimpsestError)) {
    return { type: 'Internal', message: error instanceof Error ? error.message : String(error) };
  }
  const { type, message, path } = error;
  const isReadersMistake = type === 'Store.SessionNotFound' && path === 'session';
  const hint = isReadersMistake
    ? `\`${programName()} sessions\` lists the sessions of the tenant; \`--tenant\` names another one.`
    : error.hint;
  return {
    ...{ type, message },
    ...(path === undefined ? {} : { path }),
    ...(hint === undefined ? {} : { hint }),
  };
}

/** The operator's next step after a failure, as in docs/failures.md. */
const advice = (program: string): Partial<Record<FailureType, string>> => ({
  'Llm.RateLimited': "raise the endpoint's limit, or lower summary.concurrency",
  'Llm.Unavailable': `check the endpoint (\`${program} doctor\`)`,
  'Llm.ContextOverflow': 'if this recurs, set summary.contextWindow',
  'Llm.Rejected': 'correct OPENAI_API_KEY, OPENAI_BASE_URL or PALIMPSEST_SUMMARY_MODEL of the workers',
  'Llm.BadOutput': 'try another summary model',
  'Llm.InFlight': 'nothing: another compaction has asked for this answer, and it will be used',
  'Summary.NotSmaller': 'lower summary.minGain, or keep less',
  'Summary.PinsLost': 'shorten the pins',
  'Summary.DepthExceeded': 'raise summary.depthLimit, or use a summarizer with a larger window',
  'Store.StaleGeneration': 'nothing: the compaction is planned again',
  'Store.DigestGone': 'nothing: the request is repeated; if this recurs, raise retention.digests',
  'Store.Corrupt': `run \`${program} verify\`; restore the damaged sessions from a backup`,
  'Store.Busy':
    'repeat the call; if it fails again, look for a stopped process: `select * from pg_stat_activity`',
  'Store.Unavailable': `check DATABASE_URL; run \`${program} doctor\``,
  'Temporal.Unavailable': `check TEMPORAL_ADDRESS; run \`${program} doctor\``,
  'Payload.Unreadable': 'set PALIMPSEST_PAYLOAD_KEYS to all keys that have encrypted payloads',
  'Worker.Failed':
    "find the activity in the workers' log, check that all workers run one version, compact again",
  'Budget.Unreachable':
    'use a larger window, fewer pins or a shorter message; if that is the newest user message, set reduce.newestUserMessage: true',
});

export const adviceFor = (type: string): string | undefined =>
  isFailureType(type) ? advice(programName())[type] : undefined;
