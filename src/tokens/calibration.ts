/**
 * Learns corrections of counts from reported usage. A tokenizer other than the model's, an undeclared request overhead and
 * images cause differences between reported and counted tokens in either direction. Each pair of model and tokenizer is learnt
 * separately.
 */
import { modelName } from './windows.js';

/** Tokens that we counted for a context, and tokens that the provider reported for the whole request that contained it. */
export type Request = readonly [counted: number, reported: number];

interface Line {
  /** The provider's tokens per counted token. */
  factor: number;
  /** Tokens that the provider counts in a request in addition to the context; 0 if reports show none. */
  overhead: number;
  /** Whether the factor comes from requests of different sizes, so that it is independent of the overhead. */
  fitted: boolean;
}

/**
 * The line through the reported requests, `reported = overhead + factor · counted`, estimates the provider's count for a
 * context of any size. Uncertain values are rounded up: a line that is too high wastes a part of the window; a line that is too
 * low lets a request exceed the window.
 */
export const noLine: Line = { factor: 1, overhead: 0, fitted: false };

/**
 * No model's tokenizer differs more than this from the tokenizer that counts here. A report below the lower bound, or above
 * both the upper bound and the window, belongs to another request.
 */
export const LOWEST_FACTOR = 0.5;
export const HIGHEST_FACTOR = 5;
/** Number of requests that are needed before the calibration may enlarge a context. */
export const SETTLED_REQUESTS = 3;
/** Minimum difference of two contexts, in tokens and as a share, for their requests to determine the factor. */
const LEAST_SPREAD = 500;
const LEAST_SPREAD_SHARE = 0.1;
/**
 * Maximum deviation of a report from the line through all reports, as a share of the report, for the calibration to enlarge a
 * context.
 */
const LARGEST_DEVIATION = 0.1;
/** Maximum deviation, as a share of the report, at which reports count as free of noise. */
const CLEAR_DEVIATION = 0.02;

/**
 * `declared`: tokens of overhead in the policy, used until requests of different sizes contradict them.
 * `before`: the previous line; its factor stays while all requests have the same size.
 */
function lineThrough(requests: readonly Request[], declared: number, before: Line): Line {
  const slopes = slopesOf(requests);
  const fitted = slopes.length > 0 || before.fitted;
  // The overhead is never negative, so a context never has more tokens than the whole request.
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
 * A slope above the ratio of reported to counted tokens means that every report lacks a part, such as cached tokens, or that the
 * reports are noisy. The slope is used if all reports are close to its line. If they are not, the ratio is used, but at least 1
 * if the slope is far above the ratio: uncertain reports enlarge no context.
 */
function slopeOr(whole: number, slope: number, requests: readonly Request[]): number {
  if (slope <= whole) return slope;
  const isClear = deviations(requests, slope).every((deviation) => Math.abs(deviation) <= CLEAR_DEVIATION);
  if (isClear && requests.length >= SETTLED_REQUESTS) return slope;
  return slope > (1 + LARGEST_DEVIATION) * whole ? Math.max(1, whole) : whole;
}

/** Whether counted text makes up at least half of the report. */
export function isExplained([counted, reported]: Request): boolean {
  return 2 * counted >= reported;
}

/** Slopes between requests. Adds one token for rounding: half a token at either end makes a slope too small. */
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

/** Attributes tokens beyond the declared overhead to the factor if most of a request is text, else to the overhead. */
function assumedFactor(requests: readonly Request[], declared: number): number {
  const explained = requests.filter(isExplained);
  if (explained.length === 0) return 1;
  // Requests of one size cannot distinguish a tokenizer with lower counts from an incomplete report.
  return Math.max(1, upperMedian(explained.map(([counted, reported]) => (reported - declared) / counted)));
}

/** Whether enough requests that are mostly text support a factor below 1, and no request contradicts it. */
function isSupported(factor: number, requests: readonly Request[]): boolean {
  if (factor < LOWEST_FACTOR || requests.filter(isExplained).length < SETTLED_REQUESTS) return false;
  return deviations(requests, factor).every((deviation) => Math.abs(deviation) <= LARGEST_DEVIATION);
}

/** How far each report lies above the median line with this factor, as a share of the report. */
function deviations(requests: readonly Request[], factor: number): number[] {
  const beside = ([counted, reported]: Request) => reported - factor * counted;
  const overhead = upperMedian(requests.map(beside));
  return requests.map((request) => (beside(request) - overhead) / Math.max(1, request[1]));
}

/** Drops a single report far above several others: it may cover several requests. */
function withoutOutlier(requests: readonly Request[], factor: number): readonly Request[] {
  if (requests.length < SETTLED_REQUESTS) return requests;
  const above = deviations(requests, factor);
  const far = above.flatMap((deviation, index) => (deviation > LARGEST_DEVIATION ? [index] : []));
  return far.length === 1 ? requests.filter((_, index) => index !== far[0]) : requests;
}

/** The smallest overhead for which no request lies above the line. */
function overheadAbove(requests: readonly Request[], factor: number): number {
  const beside = requests.map(([counted, reported]) => Math.ceil(reported - factor * counted));
  return Math.max(0, ...beside);
}

function upperMedian(values: readonly number[]): number {
  const ascending = [...values].sort((a, b) => a - b);
  return ascending[Math.floor(ascending.length / 2)] ?? 1;
}

export interface CalibrationSample extends Line {
  /** Number of requests learnt from. */
  samples: number;
  /** The newest of these requests, oldest first. */
  recent: Request[];
  /** Consecutive reports far below the line; once there are enough, they replace all others. */
  doubted?: Request[];
  /** The newest report that cannot belong to its request, and the number of samples at that time. */
  implausible?: { counted: number; reported: number; samples: number };
}

/** Samples by `calibrationKey`. */
export type Calibration = Readonly<Record<string, CalibrationSample>>;

/** The counted and reported sizes of a request. */
export interface ReportedRequest {
  /** Counted tokens of the request's context. */
  counted: number;
  /** The provider's tokens of the whole request. */
  reported: number;
  /** Tokens of request overhead in the policy. */
  declared: number;
  /** The model's window in tokens. */
  window: number;
}

/** Number of requests for a line: enough for a median, few enough to follow changes of a provider. */
const MOST_RECENT = 12;
/** Counted tokens below which framing may be half of a request. */
const SMALLEST_REQUEST = 500;
/** Minimum of a plausible report as a share of the estimate. */
const LEAST_EXPECTED = 0.7;
/** Maximum number of models learnt per session; reports of further models are ignored. */
const MOST_MODELS = 32;

/**
 * The name of a model without routers' prefixes, dates and `-latest`; '' without a model.
 * @internal Tests call it with vendors' names.
 */
export function calibratedModel(model: string | null | undefined): string {
  return modelName(model ?? '').replace(/[-@](?:\d{4}-\d{2}-\d{2}|\d{8}|\d{4}|latest)$/, '');
}

export function calibrationKey(model: string | null | undefined, tokenizer: string): string {
  return `${calibratedModel(model)}|${tokenizer}`;
}

const nothingKnown: CalibrationSample = { ...noLine, samples: 0, recent: [] };

/**
 * The calibration after one more request. A report that cannot belong to this request is only noted as implausible; for a
 * report without information, `calibration` itself is returned.
 */
export function calibrated(calibration: Calibration, key: string, request: ReportedRequest): Calibration {
  const known = Object.hasOwn(calibration, key) ? calibration[key] : undefined;
  if (known === undefined && Object.keys(calibration).length >= MOST_MODELS) return calibration;
  const sample = afterRequest(known ?? nothingKnown, request);
  return sample === null ? calibration : { ...calibration, [key]: sample };
}

function afterRequest(known: CalibrationSample, request: ReportedRequest): CalibrationSample | null {
  const { counted, reported, declared, window } = request;
  if (!Number.isFinite(counted + reported) || counted < 1 || reported < 0) return null;
  const implausible = { counted, reported, samples: known.samples };
  if (reported < LOWEST_FACTOR * counted)
    return counted < SMALLEST_REQUEST ? null : { ...known, implausible };
  if (reported > HIGHEST_FACTOR * counted && reported > window) return { ...known, implausible };

  const newest: Request = [counted, reported];
  if (isFarBelow(known, newest)) {
    const doubted = [...(known.doubted ?? []), newest];
    if (doubted.length < SETTLED_REQUESTS) return { ...known, doubted, implausible };
    return learnt(noLine, doubted, declared, known.samples + doubted.length);
  }
  const recent = [...known.recent, newest].slice(-MOST_RECENT);
  const sample = learnt(known, recent, declared, known.samples + 1);
  const noted = known.implausible;
  const isNoted = noted !== undefined && sample.samples - noted.samples < MOST_RECENT;
  return isNoted ? { ...sample, implausible: noted } : sample;
}

function learnt(before: Line, recent: Request[], declared: number, samples: number): CalibrationSample {
  return { ...lineThrough(recent, declared, before), samples, recent };
}

/** Whether a report is far below the line: it may lack cached tokens, or the provider now counts differently. */
function isFarBelow({ factor, overhead, fitted, samples }: CalibrationSample, [counted, reported]: Request) {
  return fitted && samples >= SETTLED_REQUESTS && reported < LEAST_EXPECTED * (overhead + factor * counted);
}

/**
 * The sample of the policy's model. If the policy names none, the sample with the highest count for a large context among the
 * models reported most, since any of them may receive the context.
 */
export function knownOf(
  calibration: Calibration,
  model: string | null,
  tokenizer: string,
): CalibrationSample & { model: string } {
  const own = calibrationKey(model, tokenizer);
  const candidates = Object.entries(calibration).filter(([key]) =>
    model === null ? key.endsWith(`|${tokenizer}`) : key === own,
  );
  const most = Math.max(0, ...candidates.map(([, { samples }]) => samples));
  const [key, sample] = candidates
    .filter(([, { samples }]) => samples >= most / 4)
    .sort(([a, one], [b, other]) => forLarge(other) - forLarge(one) || (a < b ? -1 : 1))[0] ?? [
    own,
    nothingKnown,
  ];
  return { model: key.slice(0, key.lastIndexOf('|')), ...sample };
}

function forLarge({ factor, overhead }: Line): number {
  return overhead + 100_000 * factor;
}
