import type { Pool } from 'pg';
import { isFailure, type FailureType } from '../errors.js';
import { assertMigrated } from '../store/connection/migrate.js';
import type { SessionWorkflows } from '../temporal/session-workflows.js';

/** The failure of a server that cannot be used; null where it can. */
export type ServerFailure = { type: FailureType; message: string; hint?: string } | null;

export interface Readiness {
  /** Answers, and has the schema of this version. */
  postgres: ServerFailure;
  temporal: ServerFailure;
}

/** Asks both servers, which takes seconds at most. */
export async function readinessOf(pool: Pool, workflows: SessionWorkflows): Promise<Readiness> {
  const [postgres, temporal] = await Promise.all([
    failureOfServer(() => assertMigrated(pool)),
    failureOfServer(() => workflows.reach()),
  ]);
  return { postgres, temporal };
}

/** The typed failure of `ask`; null where it is answered. */
export async function failureOfServer(ask: () => Promise<void>): Promise<ServerFailure> {
  try {
    await ask();
    return null;
  } catch (error) {
    if (!isFailure(error)) throw error;
    const { type, message, hint } = error;
    return { type, message, ...(hint === undefined ? {} : { hint }) };
  }
}
