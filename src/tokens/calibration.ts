/**
 * What a provider's reported usage says of our counts. A tokenizer that is not the model's own, a request overhead that
 * nobody told us, images: all of it shows as a difference between reported and counted tokens, in either direction.
 * Each model is learnt apart, and apart for each tokenizer that we counted with.
 */
import { modelName } from './windows.js';

/** Our tokens of a context, and the provider's of the whole request that carried it. */
export type Request = readonly [counted: number, reported: number];

interface Line {
  /** The provider's tokens for one of ours. */
  factor: number;
  /** The provider's tokens of a request beside its context; 0 where nothing shows any. */
  overhead: number;
  /** The factor comes from requests of different sizes, so that it holds without the overhead. */
  fitted: boolean;
}

/**
 * What a provider counts for a context of any size, from what it reported for some: a line through the reported requests,
 * `reported = overhead + factor · counted`. Everything unclear is settled upwards: a line that lies above the truth wastes
 * a part of the window, one below it lets a request exceed the window.
 */
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
function lineThrough(requests: readonly Request[], declared: number, before: Line): Line {
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

export interface CalibrationSample extends Line {
  /** Requests that it comes from. */
  samples: number;
  /** The newest of them, oldest first. */
  recent: Request[];
  /** Reports far below what is known: believed, and all else forgotten, once there are enough in a row. */
  doubted?: Request[];
  /** The newest report that cannot be of its request, and how many samples there were then. */
  implausible?: { counted: number; reported: number; samples: number };
}

/** By `calibrationKey`. */
export type Calibration = Readonly<Record<string, CalibrationSample>>;

/** One request as it was counted and reported. */
export interface ReportedRequest {
  /** Our tokens of its context. */
  counted: number;
  /** The provider's tokens of all of it. */
  reported: number;
  /** Tokens of request overhead that the policy gives. */
  declared: number;
  /** The model's window, tokens. */
  window: number;
}

/** Requests that a line is drawn through: enough for a median, few enough to follow a provider that changes. */
const MOST_RECENT = 12;
/** Counted tokens below which framing alone may be half of a request. */
const SMALLEST_REQUEST = 500;
/** Share of what is known that a plausible report is not below. */
const LEAST_EXPECTED = 0.7;
/** Models remembered for one session; reports of further ones are not learnt from. */
const MOST_MODELS = 32;

/**
 * A model as calibration knows it: routers' prefixes, dates and `-latest` left out; '' where none is named.
 * @internal Tests ask it for names as vendors write them.
 */
export function calibratedModel(model: string | null | undefined): string {
  return modelName(model ?? '').replace(/[-@](?:\d{4}-\d{2}-\d{2}|\d{8}|\d{4}|latest)$/, '');
}

export function calibrationKey(model: string | null | undefined, tokenizer: string): string {
  return `${calibratedModel(model)}|${tokenizer}`;
}

const nothingKnown: CalibrationSample = { ...noLine, samples: 0, recent: [] };

/**
 * What is known after one more request. A report that cannot be of this request is remembered as such and changes
 * nothing else; one that tells nothing answers `calibration` itself.
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

/** A part of the request that came from a cache may be missing, or the provider counts otherwise now. */
function isFarBelow({ factor, overhead, fitted, samples }: CalibrationSample, [counted, reported]: Request) {
  return fitted && samples >= SETTLED_REQUESTS && reported < LEAST_EXPECTED * (overhead + factor * counted);
}

/**
 * What is known of the model a policy names. Where it names none, of those reported most: the one that counts most for
 * a large context, for any of them may be sent it.
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
