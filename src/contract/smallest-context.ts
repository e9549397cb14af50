import { isFailure } from '../errors.js';
import type { ContextShape } from './context.js';

/**
 * Reads a context within its budget or, if none fits, the smallest one: the next question makes the question before it an old
 * message, which can be shortened.
 */
export async function orSmallest<Result>(
  read: (shape: Pick<ContextShape, 'budget'>) => Promise<Result>,
): Promise<Result> {
  for (let shape: Pick<ContextShape, 'budget'> = {}; ;) {
    try {
      return await read(shape);
    } catch (error) {
      const floor = isFailure(error, 'Budget.Unreachable') ? error.details?.floor : null;
      if (typeof floor !== 'number' || floor <= (shape.budget ?? 0)) throw error;
      shape = { budget: floor };
    }
  }
}
