/** Every recorded session, clean and malformed, and every original of another format: imported, exact, and recognised the second time. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ChatMessage, Json } from '../../../src/conversation/message.js';
import { importSessions } from '../../../src/import/importer.js';
import type { ImportReport } from '../../../src/import/report.js';
import { fileSources } from '../../../src/import/sources.js';
import { exportSession } from '../../../src/store/reading/replay.js';
import { openPool } from '../../support/pool.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { fileText } from '../../support/native-files.js';
import { replayed } from '../../support/store.js';
import { joined } from '../../support/texts.js';
import { readTranscripts, skipWithoutTranscripts } from '../../support/transcripts.js';

const recordings = process.env.PALIMPSEST_TRANSCRIPTS ?? '';

describe.skipIf(skipWithoutTranscripts())('an import of recorded sessions', () => {
  let database: TestDatabase;
  let pool: Pool;
  beforeAll(async () => {
    database = await createDatabase();
    pool = openPool(database.url, { max: 12 });
  });
  afterAll(async () => {
    await pool.end();
    await database.drop();
  });

  async function run(inputs: string[], tenant: string): Promise<ImportReport[]> {
    const reports: ImportReport[] = [];
    await importSessions(pool, await fileSources(inputs), {
      tenant,
      concurrency: 8,
      keepDuplicates: true,
      onReport: (report) => void reports.push(report),
    });
    return reports;
  }

  test('keeps every message, and adds nothing the second time', async () => {
    const files = new Set<string>();
    const expected = new Map<string, { id: string; messages: ChatMessage[] }>();
    for await (const { line, file } of readTranscripts()) {
      files.add(path.join(recordings, file));
      const record = JSON.parse(line) as { id: string; messages: ChatMessage[] };
      expected.set(record.id, record);
    }
    const started = performance.now();
    const reports = await run([...files], 'recorded');
    const seconds = (performance.now() - started) / 1_000;
    expect(reports.filter(({ status }) => status !== 'stored')).toEqual([]);
    expect(reports.map(({ session }) => session).sort()).toEqual([...expected.keys()].sort());
    for (const [session, record] of expected) {
      const ids = { tenant: 'recorded', session };
      const log = await replayed(pool, ids);
      if (JSON.stringify(log.map(({ message }) => message)) !== JSON.stringify(record.messages))
        throw new Error(`${session} is not what was imported`);
      if ((await joined(exportSession(pool, ids))) !== fileText(record as unknown as Json, 'document'))
        throw new Error(`${session} is not exported as it was imported`);
    }
    const again = await run([...files], 'recorded');
    expect(again.filter(({ status }) => status !== 'present')).toEqual([]);
    const sum = reports.reduce((total, { messages }) => total + messages, 0);
    console.log(
      `${reports.length} sessions, ${sum} messages imported in ${seconds.toFixed(1)} s (${(reports.length / seconds).toFixed(0)} sessions/s)`,
    );
  });

  test('exports every original of another format completely, or gives the reason', async () => {
    const folder = path.join(recordings, 'native');
    const names = (await readdir(folder, { recursive: true })).filter((name) =>
      /\.(jsonl?|traj)(\.gz)?$/.test(name),
    );
    expect(names.length).toBeGreaterThan(0);
    const outcomes: string[] = [];
    for (const name of names.sort()) {
      const file = path.join(folder, name);
      for (const report of await run([file], name)) {
        const { session, status, format, messages, error } = report;
        if (status === 'refused') {
          expect(error).toMatchObject({ type: 'Input.Invalid' });
          outcomes.push(`${name}: refused: ${error?.message}`);
          continue;
        }
        outcomes.push(`${name}: ${format}, ${messages} messages`);
        expect(textsOf(file)).toContain(await joined(exportSession(pool, { tenant: name, session })));
      }
      for (const { status } of await run([file], name)) expect(['present', 'refused']).toContain(status);
    }
    console.log(outcomes.join('\n'));
  });

  test('continues a log of an agent that has grown since', async () => {
    const folder = path.join(recordings, 'native');
    const files = [
      'claude-code/jnarowski+agentcmd--full-session-two.jsonl',
      'claude-code/jnarowski+agentcmd--full-session-four.jsonl',
    ];
    const copy = mkdtempSync(path.join(os.tmpdir(), 'palimpsest-grown-'));
    for (const [number, name] of files.entries()) {
      const text = readFileSync(path.join(folder, name), 'utf8');
      const lines = text.trimEnd().split('\n');
      const values = lines.map((line) => JSON.parse(line) as Json);
      const file = path.join(copy, `${number}.jsonl`);
      const tenant = `grown-${number}`;
      const statuses: string[] = [];
      // Cut inside a message, it would be another message.
      const cuts = lines.flatMap((line, index) =>
        index > 0 && line.includes('"role":"user"') ? [index] : [],
      );
      for (const count of [...cuts.filter((_, index) => index % 3 === 0), lines.length]) {
        writeFileSync(file, lines.slice(0, count).join('\n'));
        for (const { status, session, error } of await run([file], tenant)) {
          statuses.push(error ? `${count}: ${error.message}` : status);
          if (error || count < lines.length) continue;
          expect(await joined(exportSession(pool, { tenant, session }))).toBe(fileText(values, 'lines'));
        }
      }
      expect(statuses.at(-1)).toMatch(/extended|present/);
      expect(new Set(statuses.slice(statuses.indexOf('stored') + 1))).toContain('extended');
    }
    rmSync(copy, { recursive: true });
  });
});

/** The possible exports of the file: one document, its lines, or each of these. */
function textsOf(file: string): string[] {
  const bytes = readFileSync(file);
  const text = (file.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString('utf8');
  try {
    return [fileText(JSON.parse(text) as Json, 'document')];
  } catch {
    const lines = text.split('\n').filter((line) => line.trim() !== '');
    const values = lines.map((line) => JSON.parse(line) as Json);
    return [fileText(values, 'lines'), ...values.map((value) => fileText(value, 'document'))];
  }
}
