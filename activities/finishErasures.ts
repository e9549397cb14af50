import { Context } from '@temporalio/activity';
import { finishErasures as finish } from '../src/temporal/erasures.js';
import type { Dependencies } from './dependencies.js';
import { runStep } from './run.js';

export interface FinishErasuresInput {
  /** Erased sessions to go on with at most. @default 100 */
  most?: number;
}

/** Goes on with erasures whose executions Temporal still held, or that were made while it did not answer. */
export function finishErasures({ pool }: Dependencies) {
  return ({ most }: FinishErasuresInput = {}): Promise<{
    erasures: number;
    executions: number;
    unfinished: number;
  }> =>
    runStep('finish erasures', ({ signal }) =>
      finish({ pool, client: Context.current().client }, { signal, ...(most === undefined ? {} : { most }) }),
    );
}
