import { Context, log } from '@temporalio/activity';
import { finishErasures as finish } from '../src/erase/executions.js';
import type { Dependencies } from './dependencies.js';
import { runStep } from './run.js';

export interface FinishErasuresInput {
  /** Erased sessions to go on with at most. @default 100 */
  most?: number;
}

export interface FinishedErasures {
  /** Erased sessions that it looked after. */
  erasures: number;
  /** Runs that the server was told to delete. */
  executions: number;
  /** Sessions for which it could not be told all. */
  unfinished: number;
}

/** The sweep begins with no further one after this long: a step may take two minutes. */
const beginsForMs = 60_000;

/** Goes on with erasures whose executions Temporal still held, or that were made while it did not answer. */
export function finishErasures({ pool }: Dependencies) {
  return ({ most }: FinishErasuresInput = {}): Promise<FinishedErasures> =>
    runStep('finish erasures', async ({ signal }) => {
      const { client } = Context.current();
      const limits = { forMs: beginsForMs, ...(most === undefined ? {} : { most }) };
      const finished = await finish({ pool, client }, { signal, ...limits });
      if (finished.erasures > 0) log.info('erasures were gone on with', { ...finished });
      return finished;
    });
}
