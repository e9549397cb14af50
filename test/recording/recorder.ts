import { mkdir, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { Client, Connection, type WorkflowHandle } from '@temporalio/client';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import type { Pool } from 'pg';
import { expect } from 'vitest';
import type { SessionIds } from '../../src/contract/ids.js';
import type { ChatMessage } from '../../src/conversation/message.js';
import type { PolicyInput } from '../../src/policy/schema.js';
import { openPool } from '../support/pool.js';
import { compactionWorkflowId, sessionWorkflowId } from '../../src/temporal/names.js';
import { dialogue, smallPolicy } from '../support/dialogue.js';
import { appendTurns } from '../support/sessions.js';
import { startStack, type Stack, type StackOptions } from '../support/stack.js';

/** Records the histories of workflows for the replay test, one folder a recording. A recording is never written over. */
export interface Recorder {
  stack: Stack;
  client: Client;
  pool: Pool;
  ids(session: string): SessionIds;
  sessionOf(session: string): WorkflowHandle;
  compactionOf(session: string, generation?: number): WorkflowHandle;
  /** Appends turns `from` up to `through` of a talk that no other session has, and waits until it is quiet. */
  play(session: string, policy: PolicyInput, through?: number, from?: number): Promise<void>;
  /** Writes the history of the run, by default of the last one. */
  record(name: string, workflowId: string, runId?: string): Promise<void>;
  close(): Promise<void>;
}

export const chunky: PolicyInput = { ...smallPolicy, summary: { chunkTokens: 500 } };

export const talk = (session: string, turns: number): ChatMessage[][] =>
  dialogue(turns).map((turn) =>
    turn.map(({ role, content }) => ({ role, content: `${session}: ${String(content)}` })),
  );

const label = process.env['RECORD_HISTORIES'] ?? '';
const folder = fileURLToPath(new URL(`../histories/${label}/`, import.meta.url));

export async function startRecorder(options?: StackOptions): Promise<Recorder> {
  if (!/^[a-z\d][a-z\d.-]*$/.test(label))
    throw new Error(`RECORD_HISTORIES names the new recording in a-z, 0-9, "." and "-", not "${label}"`);
  await mkdir(folder, { recursive: true });
  const stack = await startStack(options);
  const client = new Client({ connection: await Connection.connect(stack.temporal) });
  const pool = openPool(stack.databaseUrl, { max: 4 });
  const ids = (session: string): SessionIds => ({ tenant: stack.queuePrefix, session });
  return {
    ...{ stack, client, pool, ids },
    sessionOf: (session) => client.workflow.getHandle(sessionWorkflowId(ids(session))),
    compactionOf: (session, generation = 1) =>
      client.workflow.getHandle(compactionWorkflowId(ids(session), generation)),
    async play(session, policy, through = 18, from = 0) {
      await appendTurns(stack.palimpsest, session, talk(session, through).slice(from), { policy, from });
      await stack.palimpsest.settled({ session });
    },
    async record(name, workflowId, runId) {
      const history = await client.workflow.getHandle(workflowId, runId).fetchHistory();
      // Stack traces and identities of workers contain paths and host names.
      const clean = (key: string, value: unknown) =>
        key === 'stackTrace' || key === 'identity' ? '' : value;
      const text = JSON.stringify(JSON.parse(historyToJSON(history)), clean, 1);
      await writeFile(`${folder}${name}.json`, text, { flag: 'wx' });
    },
    async close() {
      await client.connection.close();
      await pool.end();
      await stack.stop();
    },
  };
}

type HistoryEvent = NonNullable<Awaited<ReturnType<WorkflowHandle['fetchHistory']>>['events']>[number];

/** Waits until the run has such an event. */
export async function hasEvent(
  handle: WorkflowHandle,
  isMeant: (event: HistoryEvent) => boolean,
): Promise<void> {
  await expect.poll(async () => (await handle.fetchHistory()).events?.some(isMeant)).toBe(true);
}
