import { isFailureType, type FailureType } from '../../errors.js';

/** What an operator does about a failure that is over: README's table, briefly. */
const advice: Partial<Record<FailureType, string>> = {
  'Llm.RateLimited': "raise the endpoint's limit, or lower summary.concurrency",
  'Llm.Unavailable': 'look at the endpoint (`palimpsest doctor`); the fallback serves meanwhile',
  'Llm.ContextOverflow': 'set summary.contextWindow where it repeats',
  'Llm.Rejected': 'correct OPENAI_API_KEY, OPENAI_BASE_URL or PALIMPSEST_SUMMARY_MODEL of the workers',
  'Llm.BadOutput': 'try another summary model',
  'Llm.InFlight': 'nothing: the answer that another compaction asks for is taken',
  'Summary.NotSmaller': 'lower summary.minGain, or keep less',
  'Summary.PinsLost': 'shorten the pins',
  'Summary.DepthExceeded': 'raise summary.depthLimit, or use a summarizer with a larger window',
  'Store.StaleGeneration': 'nothing: it is planned anew',
  'Store.DigestGone': 'nothing: it is asked for again; where it repeats, raise retention.digests',
  'Store.Corrupt': 'run `palimpsest verify`; restore from a backup what it finds damaged',
  'Store.Busy': 'repeat it; where it stays, look for a stopped process: `select * from pg_stat_activity`',
  'Store.Unavailable': 'look at DATABASE_URL; run `palimpsest doctor`',
  'Temporal.Unavailable': 'look at TEMPORAL_ADDRESS; run `palimpsest doctor`',
  'Worker.Failed': "look for the step in the workers' log, check that all are of one version, compact again",
  'Budget.Unreachable':
    'a larger window, fewer pins, a shorter message, or reduce.newestUserMessage: true where it is the newest one of a user',
};

export const adviceFor = (type: string): string | undefined =>
  isFailureType(type) ? advice[type] : undefined;
