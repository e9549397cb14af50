/**
 * What a provider counts for a context of any size, from what it reported for some: a line through the reported requests,
 * `reported = overhead + factor · counted`. Everything unclear is settled upwards: a line that lies above the truth wastes
 * a part of the window, one below it lets a request exceed the window.
 */

/** Our tokens of a context, and the provider's of the whole request that carried it. */
export type Request = readonly [counted: number, reported: number];

export interface Line {
  /** The provider's tokens for one of ours. */
  factor: number;
  /** The provider's tokens of a request beside its context; 0 where nothing shows any. */
  overhead: number;
  /** The factor comes from requests of different sizes, so that it holds without the overhead. */
  fitted: boolean;
}

export const noLine: Line = { factor: 1, overhead: 0, fitted: false };

/** No tokenizer differs more from ours; beyond these, a report is of something else. */
export const LOWEST_FACTOR = 0.5;
export const HIGHEST_FACTOR = 5;
/** Requests from which something is known; fewer never make a context larger. */
export const SETTLED_REQUESTS = 3;
/** Two requests say something of the factor where their contexts differ by this many tokens, and by this share. */
const LEAST_SPREAD = 500;
const LEAST_SPREAD_SHARE = 0.1;
/** Requests on whose word a context may become larger lie this close to their line. */
const LARGEST_DEVIATION = 0.1;
/** Requests that show a line beyond their noise lie this close to it. */
const CLEAR_DEVIATION = 0.02;

/**
 * `declared`: tokens of overhead that the policy gives, believed until requests of different sizes say otherwise.
 * `before`: what was known so far, whose factor stays while the requests are all of one size.
 */
export function lineThrough(requests: readonly Request[], declared: number, before: Line): Line {
  const slopes = slopesOf(requests);
  const fitted = slopes.length > 0 || before.fitted;
  // No overhead is negative, so that no context has more tokens than the whole request.
  const whole = upperMedian(requests.map(([counted, reported]) => reported / counted));
  const found =
    slopes.length > 0
      ? slopeOr(whole, upperMedian(slopes), requests)
      : before.fitted
        ? before.factor
        : assumedFactor(requests, declared);
  const factor = found >= 1 || isSupported(found, requests) ? Math.min(found, HIGHEST_FACTOR) : 1;
  return { factor, overhead: overheadAbove(withoutOutlier(requests, found), factor), fitted };
}

/**
 * A slope above the whole request's means that something is missing from every report, such as what came from a cache, or
 * that the reports are noisy. It is believed where they lie close to it, and it keeps a context from becoming larger.
 */
function slopeOr(whole: number, slope: number, requests: readonly Request[]): number {
  if (slope <= whole) return slope;
  const isClear = deviations(requests, slope).every((deviation) => Math.abs(deviation) <= CLEAR_DEVIATION);
  if (isClear && requests.length >= SETTLED_REQUESTS) return slope;
  return slope > (1 + LARGEST_DEVIATION) * whole ? Math.max(1, whole) : whole;
}

/** At least half of what was reported is text that we counted. */
export function isExplained([counted, reported]: Request): boolean {
  return 2 * counted >= reported;
}

/** Reported tokens are whole: half of one at either end makes a slope too small by as much. */
function slopesOf(requests: readonly Request[]): number[] {
  const slopes: number[] = [];
  const ascending = [...requests].sort(([one], [other]) => one - other);
  for (const [index, [large, reported]] of ascending.entries()) {
    for (const [small, less] of ascending.slice(0, index)) {
      const spread = large - small;
      if (spread < LEAST_SPREAD || spread < LEAST_SPREAD_SHARE * large) break;
      slopes.push((reported - less + 1) / spread);
    }
  }
  return slopes;
}

/** What lies beyond the declared overhead is the factor's where most of a request is text, the overhead's elsewhere. */
function assumedFactor(requests: readonly Request[], declared: number): number {
  const explained = requests.filter(isExplained);
  if (explained.length === 0) return 1;
  // Requests of one size cannot tell a tokenizer that counts less from a part that their reports leave out.
  return Math.max(1, upperMedian(explained.map(([counted, reported]) => (reported - declared) / counted)));
}

/** Whether enough requests that are mostly text, and no other, say that a context may be larger than we count. */
function isSupported(factor: number, requests: readonly Request[]): boolean {
  if (factor < LOWEST_FACTOR || requests.filter(isExplained).length < SETTLED_REQUESTS) return false;
  return deviations(requests, factor).every((deviation) => Math.abs(deviation) <= LARGEST_DEVIATION);
}

/** By which share of itself each report lies above the line of this factor that halves them. */
function deviations(requests: readonly Request[], factor: number): number[] {
  const beside = ([counted, reported]: Request) => reported - factor * counted;
  const overhead = upperMedian(requests.map(beside));
  return requests.map((request) => (beside(request) - overhead) / Math.max(1, request[1]));
}

/** Without the one report that lies far above all others, once they are several: it may be of several requests. */
function withoutOutlier(requests: readonly Request[], factor: number): readonly Request[] {
  if (requests.length < SETTLED_REQUESTS) return requests;
  const above = deviations(requests, factor);
  const far = above.flatMap((deviation, index) => (deviation > LARGEST_DEVIATION ? [index] : []));
  return far.length === 1 ? requests.filter((_, index) => index !== far[0]) : requests;
}

/** No request lies above the line. */
function overheadAbove(requests: readonly Request[], factor: number): number {
  const beside = requests.map(([counted, reported]) => Math.ceil(reported - factor * counted));
  return Math.max(0, ...beside);
}

function upperMedian(values: readonly number[]): number {
  const ascending = [...values].sort((a, b) => a - b);
  return ascending[Math.floor(ascending.length / 2)] ?? 1;
}
