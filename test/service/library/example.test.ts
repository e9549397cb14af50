/**
 * The example is a model for a platform's agent loop, so its claim is tested: sixty turns with tools on a model that
 * refuses requests over its window, and no request is refused and no message lost.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { agentModel, startScriptedModel } from '../../../examples/scripted-model.js';
import { program } from '../../support/compiled.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { temporalAddress } from '../../support/temporal.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
let database: TestDatabase;
let dataDir: string;

beforeAll(async () => {
  database = await createDatabase();
  dataDir = await mkdtemp(path.join(tmpdir(), 'example-'));
});

afterAll(async () => {
  await rm(dataDir, { recursive: true });
  await database.drop();
});

async function example(...flags: string[]): Promise<string[]> {
  const args = [program('examples/agent-loop.ts'), ...flags];
  const servers = { DATABASE_URL: database.url, TEMPORAL_ADDRESS: temporalAddress() };
  const env = { ...process.env, TEMPORAL_DEBUG: '', ...servers, PALIMPSEST_DATA: dataDir };
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: root, env });
  return stdout.trimEnd().split('\n');
}

describe('the example of an agent loop', () => {
  it.each([
    ['over HTTP', ['--turns', '60'], 60],
    ['over the library', ['--library', '--turns', '60'], 60],
  ])('%s stays within its window, recalls evicted details and loses nothing', async (_, flags, turns) => {
    const lines = await example(...flags);
    const compactions = lines.filter((line) => /^turn +\d+ +generation +\d+ /.test(line));
    const summary = lines.at(-1) ?? '';
    const [, played, made, largest, refused, recalled, differ] =
      /^(\d+) turns.* (\d+) compactions · largest request (\d+) of 6000 tokens, (\d+) refused · (\d+) old details recalled · \d+ messages replayed, (\d+) differ$/
        .exec(summary)
        ?.map(Number) ?? [];
    expect(summary).toContain(' turns');
    expect([played, refused, differ]).toEqual([turns, 0, 0]);
    expect(made).toBe(compactions.length);
    // The agent never waits: on a busy machine fewer turns come between two of them.
    expect(made).toBeGreaterThanOrEqual(2);
    // Close to the window, so that slightly longer requests would be refused.
    expect(largest).toBeGreaterThan(4_500);
    expect(largest).toBeLessThanOrEqual(6_000);
    expect(recalled).toBe((turns - 20) / 10);
  });

  it('calls a model that, like OpenAI, refuses requests that do not fit', async () => {
    const model = await startScriptedModel({ agent: 1_000, summarizer: 1_000 });
    try {
      const openai = new OpenAI({ apiKey: 'none', baseURL: model.url, maxRetries: 0 });
      const ask = (words: number) =>
        openai.chat.completions.create({
          ...{ model: agentModel, max_completion_tokens: 100 },
          messages: [{ role: 'user', content: `Check shipment 1. ${'word '.repeat(words)}` }],
        });
      expect((await ask(850)).choices[0]?.message.tool_calls).toHaveLength(1);
      await expect(ask(950)).rejects.toMatchObject({ status: 400, code: 'context_length_exceeded' });
      expect([model.requests, model.refused]).toEqual([2, 1]);
    } finally {
      await model.close();
    }
  });
});
