/**
 * `import`, `dev` and `plan` read files in the same way: all of them accept the same files, and refuse the same files with the
 * path and the next step.
 */
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readTranscripts } from '../../../src/cli/play/transcripts.js';
import { importSessions } from '../../../src/import/importer.js';
import type { ImportReport } from '../../../src/import/report.js';
import { fileSources } from '../../../src/import/sources.js';
import { openPool } from '../../support/pool.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';

const recordings = process.env.PALIMPSEST_TRANSCRIPTS ?? path.resolve('../shared/data');

const recorded = ['sessions', 'dirty', 'native'].flatMap((kind) => {
  const folder = path.join(recordings, kind);
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name));
});

if (recorded.length === 0)
  process.stderr.write(
    `The folder ${recordings} does not exist (PALIMPSEST_TRANSCRIPTS): the tests of recorded files do not run.\n`,
  );

const chat = [
  { role: 'user', content: 'Hi' },
  { role: 'assistant', content: 'Hello' },
];

const lines = (...values: unknown[]): string => values.map((value) => JSON.stringify(value)).join('\n');
const item = (payload: object) => ({ timestamp: 't', type: 'response_item', payload });
const meta = { timestamp: 't', type: 'session_meta', payload: { id: 's-1' } };

/** By name of the file: its text, and for each of its sessions the number of messages, or the path of the error. */
const written: Record<string, [text: string, ...sessions: (number | string)[]]> = {
  'chat.json': [JSON.stringify(chat), 2],
  'sessions.jsonl': [
    lines({ id: 'a', messages: chat }, { id: 'b', messages: [{ role: 'robot' }] }),
    2,
    'messages[0].role',
  ],
  'one-message.jsonl': [lines(chat[0]), 1],
  'request.json': [
    JSON.stringify({
      model: 'claude',
      system: 'Be brief.',
      messages: [...chat, { role: 'system', content: 'Briefer.' }, chat[0]],
    }),
    5,
  ],
  'rollout.jsonl': [lines(meta, item({ type: 'message', role: 'user', content: 'Hi' })), 1],
  'cut-off.jsonl': [
    lines(meta, item({ type: 'function_call', call_id: 'a', name: 'ls', arguments: null })),
    1,
  ],
  'nameless.jsonl': [
    lines(meta, item({ type: 'function_call', call_id: 'a', arguments: '{}' })),
    'payload.name',
  ],
  'run.traj': [
    JSON.stringify({ environment: 'main', history: [{ role: 'user', content: 'Hi', agent: 'main' }] }),
    1,
  ],
  'empty.json': ['[]', 'messages'],
  'numbers.json': ['[1, 2]', '[0]'],
  'object.json': ['{"turns": []}', 'messages'],
  'no-messages.json': ['{"messages": 3}', 'messages'],
  'meta-only.jsonl': [lines(meta), 'messages'],
};

describe('each reader', () => {
  let database: TestDatabase;
  let pool: Pool;
  let folder: string;
  beforeAll(async () => {
    folder = mkdtempSync(path.join(os.tmpdir(), 'palimpsest-readers-'));
    database = await createDatabase();
    pool = openPool(database.url);
  });
  afterAll(async () => {
    await pool.end();
    await database.drop();
    rmSync(folder, { recursive: true, force: true });
  });

  /** What `import` makes of each session of a file, in order. */
  async function imported(file: string): Promise<ImportReport[]> {
    const reports: ImportReport[] = [];
    const onReport = (report: ImportReport) => void reports.push(report);
    const options = { tenant: 'readers', dryRun: true, keepDuplicates: true, concurrency: 1, onReport };
    await importSessions(pool, await fileSources([file]), options);
    return reports;
  }

  async function verdicts(file: string): Promise<(number | string)[]> {
    const reports = await imported(file);
    const reads = await readTranscripts(file);
    expect(reads.map(({ id }) => id)).toEqual(reports.map(({ session }) => session));
    return reads.map((read, index) => {
      const { status, messages, error } = reports[index]!;
      expect('error' in read).toBe(status === 'refused');
      if (!('error' in read)) {
        expect(read.messages).toHaveLength(messages);
        return messages;
      }
      const { type, message, path: at, hint } = read.error;
      expect({ type, path: at, hint }).toEqual({
        type: 'Input.Invalid',
        path: error?.path,
        hint: error?.hint,
      });
      expect(message).toBe(`${file}: ${error?.message}`);
      expect(at, message).toMatch(/./);
      expect(hint, message).toMatch(/./);
      return at!;
    });
  }

  it.each(Object.entries(written))('%s', async (name, [text, ...expected]) => {
    const file = path.join(folder, name);
    writeFileSync(file, text);
    expect(await verdicts(file)).toEqual(expected);
  });

  it.skipIf(recorded.length === 0)('every recorded file', async () => {
    let sessions = 0;
    for (const file of recorded) {
      const found = await verdicts(file);
      expect(
        found.filter((verdict) => typeof verdict === 'string'),
        file,
      ).toEqual([]);
      sessions += found.length;
    }
    expect(sessions).toBeGreaterThan(400);
  });
});
