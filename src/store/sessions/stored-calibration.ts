/** Calibration as a session's row holds it, whichever version has written it. */
import { z } from 'zod';
import {
  type Calibration,
  HIGHEST_FACTOR,
  isExplained,
  LOWEST_FACTOR,
  type Request,
  SETTLED_REQUESTS,
} from '../../tokens/calibration.js';

const tokens = z.number().min(0);
const requests = z.array(z.tuple([z.number().min(1), tokens]));

const storedSample = z.object({
  factor: z.number().positive(),
  samples: tokens,
  // Before there were these, the overhead was taken to be the declared one, and no request was kept.
  overhead: tokens.catch(0),
  fitted: z.boolean().catch(false),
  recent: requests.catch([]),
  doubted: requests.optional().catch(undefined),
  implausible: z.object({ counted: tokens, reported: tokens, samples: tokens }).optional().catch(undefined),
});

/** What cannot be read is forgotten. A factor below 1 holds only with the requests that support it. */
export function readCalibration(stored: unknown): Calibration {
  if (typeof stored !== 'object' || stored === null) return {};
  const samples: Record<string, Calibration[string]> = {};
  for (const [key, value] of Object.entries(stored)) {
    const { success, data } = storedSample.safeParse(value);
    if (!success) continue;
    const { doubted, implausible, ...sample } = data;
    const least = isSettled(sample.recent) ? LOWEST_FACTOR : 1;
    samples[key] = {
      ...sample,
      factor: Math.min(HIGHEST_FACTOR, Math.max(least, sample.factor)),
      ...(doubted ? { doubted } : {}),
      ...(implausible ? { implausible } : {}),
    };
  }
  return samples;
}

/** Whether the factor that sizes were worked out with is one that the requests allow; earlier versions took others. */
export function isAllowed(factor: number, calibration: Calibration): boolean {
  if (factor >= 1) return true;
  return Object.values(calibration).some((sample) => sample.factor < 1 && factor >= 0.9 * sample.factor);
}

function isSettled(recent: readonly Request[]): boolean {
  return recent.filter(isExplained).length >= SETTLED_REQUESTS;
}
