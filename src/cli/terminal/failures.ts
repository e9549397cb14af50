import { programName } from '../../runtime/program.js';
import { isFailureType, PalimpsestError, type FailureType } from '../../errors.js';

export interface ErrorShape {
  type: string;
  message: string;
  path?: string;
}

/** A failure as people read it: what, where, and the next step. */
export function errorLines(error: unknown): string[] {
  const { type, message, path } = errorShape(error);
  const hint = error instanceof PalimpsestError ? error.hint : undefined;
  const where = path !== undefined && !message.includes(path) ? ` (${path})` : '';
  return [`${type}: ${message}${where}`, ...(hint === undefined ? [] : [`  ${hint}`])];
}

export const errorJson = (session: string, error: unknown): string =>
  JSON.stringify({ session, error: errorShape(error) });

/** What `--json` prints in place of a result, or after the part of it that was there. */
export function failureJson(error: unknown): string {
  const hint = error instanceof PalimpsestError ? error.hint : undefined;
  return JSON.stringify({ error: { ...errorShape(error), ...(hint === undefined ? {} : { hint }) } });
}

/** A failure as scripts read it. What is no `PalimpsestError` is a defect of this program: type `Internal`. */
function errorShape(error: unknown): ErrorShape {
  if (!(error instanceof PalimpsestError)) {
    return { type: 'Internal', message: error instanceof Error ? error.message : String(error) };
  }
  const { type, message, path } = error;
  return path === undefined ? { type, message } : { type, message, path };
}

/** The next step of an operator after a failure, as in docs/failures.md. */
const advice = (program: string): Partial<Record<FailureType, string>> => ({
  'Llm.RateLimited': "raise the endpoint's limit, or lower summary.concurrency",
  'Llm.Unavailable': `look at the endpoint (\`${program} doctor\`); the fallback serves meanwhile`,
  'Llm.ContextOverflow': 'set summary.contextWindow where it repeats',
  'Llm.Rejected': 'correct OPENAI_API_KEY, OPENAI_BASE_URL or PALIMPSEST_SUMMARY_MODEL of the workers',
  'Llm.BadOutput': 'try another summary model',
  'Llm.InFlight': 'nothing: the answer that another compaction asks for is taken',
  'Summary.NotSmaller': 'lower summary.minGain, or keep less',
  'Summary.PinsLost': 'shorten the pins',
  'Summary.DepthExceeded': 'raise summary.depthLimit, or use a summarizer with a larger window',
  'Store.StaleGeneration': 'nothing: it is planned anew',
  'Store.DigestGone': 'nothing: it is asked for again; where it repeats, raise retention.digests',
  'Store.Corrupt': `run \`${program} verify\`; restore from a backup what it finds damaged`,
  'Store.Busy': 'repeat it; where it stays, look for a stopped process: `select * from pg_stat_activity`',
  'Store.Unavailable': `look at DATABASE_URL; run \`${program} doctor\``,
  'Temporal.Unavailable': `look at TEMPORAL_ADDRESS; run \`${program} doctor\``,
  'Worker.Failed': "look for the step in the workers' log, check that all are of one version, compact again",
  'Budget.Unreachable':
    'a larger window, fewer pins, a shorter message, or reduce.newestUserMessage: true where it is the newest one of a user',
});

export const adviceFor = (type: string): string | undefined =>
  isFailureType(type) ? advice(programName())[type] : undefined;
