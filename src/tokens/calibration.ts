/**
 * What a provider's reported usage says of our counts. A tokenizer that is not the model's own, a request overhead that
 * nobody told us, images: all of it shows as a difference between reported and counted tokens, in either direction. Each
 * model is learnt apart, and apart for each tokenizer that we counted with.
 */
import {
  HIGHEST_FACTOR,
  lineThrough,
  LOWEST_FACTOR,
  noLine,
  SETTLED_REQUESTS,
  type Line,
  type Request,
} from './usage-line.js';
import { modelName } from './windows.js';

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
