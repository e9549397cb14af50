import type { Pool } from 'pg';
import { isFailure, type FailureType } from '../errors.js';
import { assertMigrated } from '../store/connection/migrate.js';
import type { SessionWorkflows } from '../temporal/session-workflows.js';

/** Why a server cannot be used; null: it can. */
export type Trouble = { type: FailureType; message: string; hint?: string } | null;

export interface Readiness {
  /** Answers, and has the schema of this version. */
  postgres: Trouble;
  temporal: Trouble;
}

/** Asks both servers, which takes seconds at most. */
export async function readinessOf(pool: Pool, workflows: SessionWorkflows): Promise<Readiness> {
  const [postgres, temporal] = await Promise.all([
    troubleWith(() => assertMigrated(pool)),
    troubleWith(() => workflows.reach()),
  ]);
  return { postgres, temporal };
}

/** What keeps `ask` from being answered; null: nothing. */
export async function troubleWith(ask: () => Promise<void>): Promise<Trouble> {
  try {
    await ask();
    return null;
  } catch (error) {
    if (!isFailure(error)) throw error;
    const { type, message, hint } = error;
    return { type, message, ...(hint === undefined ? {} : { hint }) };
  }
}
