/**
 * What a provider's reported usage says of our counts. A tokenizer that is not the model's own, a request overhead that
 * nobody told us, images: all of it shows as a factor between reported and counted tokens, above or below 1. Each model
 * is learnt apart, and apart for each tokenizer that we counted with.
 */
import { modelName } from './windows.js';

/** reported = factor · counted. */
export interface CalibrationSample {
  factor: number;
  /** Requests that it comes from. */
  samples: number;
}

/** By `calibrationKey`. */
export type Calibration = Readonly<Record<string, CalibrationSample>>;

/** Tokens as the provider reported them for one request. */
export interface ReportedUsage {
  /** The whole request, tokens read from or written to a cache included. */
  inputTokens: number;
  outputTokens: number;
  /** As the provider names it; absent: the policy's. */
  model?: string;
}

/** A newer request weighs at least this much; the first ones are a plain mean: 1, 1/2, … 1/5, 1/5. */
const NEWEST_WEIGHT = 0.2;
/** Counted tokens below which framing and unknown overhead drown everything else. */
const SMALLEST_REQUEST = 500;
/** No tokenizer differs more from ours: beyond these, the report is of something else (cache misses only, a whole run). */
const LOWEST = 0.2;
const HIGHEST = 5;
/** Once a factor is known from this many requests, one more counts as at most this much off. */
const SETTLED_SAMPLES = 3;
const LARGEST_STEP = 1.5;
/** A factor in use is left alone while the learnt one is this close: a change starts new emergency reductions. */
const TOLERANCE = 0.05;
/** Models remembered for one session; reports of further ones are not learnt from. */
const MOST_MODELS = 32;

/** A model as calibration knows it: routers' prefixes, dates and `-latest` left out; '' where none is named. */
export function calibratedModel(model: string | null | undefined): string {
  return modelName(model ?? '').replace(/[-@](?:\d{4}-\d{2}-\d{2}|\d{8}|\d{4}|latest)$/, '');
}

export function calibrationKey(model: string | null | undefined, tokenizer: string): string {
  return `${calibratedModel(model)}|${tokenizer}`;
}

/**
 * What is known after one more request. `counted`: our tokens of the same request, overhead included. Answers
 * `calibration` itself where the report tells nothing: a small request, or a size that cannot be this request's.
 */
export function calibrated(
  calibration: Calibration,
  key: string,
  { counted, reported }: { counted: number; reported: number },
): Calibration {
  if (counted < SMALLEST_REQUEST || !(reported > 0)) return calibration;
  const ratio = reported / counted;
  if (!(ratio >= LOWEST && ratio <= HIGHEST)) return calibration;
  const known = Object.hasOwn(calibration, key) ? calibration[key] : undefined;
  if (known === undefined) {
    if (Object.keys(calibration).length >= MOST_MODELS) return calibration;
    return { ...calibration, [key]: { factor: ratio, samples: 1 } };
  }
  const { factor, samples } = known;
  const settled = samples >= SETTLED_SAMPLES;
  const bounded = settled ? within(ratio, factor / LARGEST_STEP, factor * LARGEST_STEP) : ratio;
  const weight = Math.max(NEWEST_WEIGHT, 1 / (samples + 1));
  const next = within(factor + weight * (bounded - factor), LOWEST, HIGHEST);
  return { ...calibration, [key]: { factor: next, samples: samples + 1 } };
}

/** What is known of the model a policy names, or where it names none, of the model reported most often. */
export function knownOf(
  calibration: Calibration,
  model: string | null,
  tokenizer: string,
): CalibrationSample & { model: string } {
  const own = calibrationKey(model, tokenizer);
  const candidates = Object.entries(calibration)
    .filter(([key]) => (model === null ? key.endsWith(`|${tokenizer}`) : key === own))
    .sort(([a, one], [b, other]) => other.samples - one.samples || (a < b ? -1 : 1));
  const [key, sample] = candidates[0] ?? [own, { factor: 1, samples: 0 }];
  return { model: key.slice(0, key.lastIndexOf('|')), ...sample };
}

/** Whether the factor in use must give way to the learnt one. */
export function isOff(applied: number, learnt: number): boolean {
  return Math.abs(learnt / applied - 1) > TOLERANCE;
}

function within(value: number, lowest: number, highest: number): number {
  return Math.min(highest, Math.max(lowest, value));
}
