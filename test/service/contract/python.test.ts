/** The Temporal contract from another language: a Python program with the SDK from PyPI, on the same servers. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { CompactionOutcome } from '../../../src/contract/compactions.js';
import type { SessionStatus } from '../../../src/contract/workflows.js';
import { smallPolicy } from '../../support/dialogue.js';
import { startStack, type Stack } from '../../support/stack.js';

const run = promisify(execFile);
const program = fileURLToPath(new URL('../../../examples/temporal_contract.py', import.meta.url));
const sdk = 'temporalio==1.35.0';

/** A Python with the SDK, made once a user; null and why where there is none to be had. */
async function python(): Promise<{ command: string | null; why: string }> {
  const folder = path.join(
    os.tmpdir(),
    `palimpsest-python-${os.userInfo().username}-${sdk.replace('==', '-')}`,
  );
  const command = path.join(folder, 'bin', 'python');
  if (existsSync(command)) return { command, why: '' };
  const draft = `${folder}-${process.pid}`;
  try {
    await run('python3', ['-m', 'venv', draft]);
    await run(path.join(draft, 'bin', 'python'), ['-m', 'pip', 'install', '--quiet', sdk], {
      timeout: 100_000,
    });
    await rename(draft, folder);
    return { command, why: '' };
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    if (existsSync(command)) return { command, why: '' };
    return {
      command: null,
      why: error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error),
    };
  }
}

const { command, why } = await python();
if (command === null) console.log(`not run: no Python 3 with ${sdk} (${why})`);

describe.skipIf(command === null)('a Python program', () => {
  let stack: Stack;
  beforeAll(async () => {
    stack = await startStack({ worker: false });
    stack.settings.inlineTurnTenants = [stack.queuePrefix];
    await stack.work();
  });
  afterAll(() => stack.stop());

  async function play(session: string, ...flags: string[]) {
    const { stdout } = await run(command!, [
      ...[program, '--address', stack.temporal.address, '--queue', `${stack.queuePrefix}-wf`],
      ...['--tenant', stack.queuePrefix, '--session', session, ...flags],
    ]);
    return JSON.parse(stdout) as { status: SessionStatus; outcome: CompactionOutcome | null };
  }

  test('starts a session with its first turn inside the signal; a repeated turn is stored once', async () => {
    const { palimpsest } = stack;
    // An id that must be encoded, the same way in both languages.
    const session = 'from python/ü (1)';
    const { status } = await play(session);
    expect(status).toMatchObject({ inbox: 0, rejectedTurns: [] });
    await play(session);
    const logged = [];
    for await (const { message } of palimpsest.replay({ session })) logged.push(message);
    expect(logged).toHaveLength(6);
    expect(logged[4]).toEqual({ role: 'user', content: 'Question 3: what does invoice 3 say?' });
  });

  test('compacts on request and reads the outcome in numbers', async () => {
    const { palimpsest } = stack;
    const session = 'compacted';
    const messages = [{ role: 'user' as const, content: 'Read the invoices.' }];
    await palimpsest.appendTurn({ session, turnId: 'first', messages, policy: smallPolicy });
    const { outcome } = await play(session, '--turns', '12');
    const { generation } = await palimpsest.status({ session });
    expect(outcome).toMatchObject({ generation });
    expect(generation).toBeGreaterThan(0);
    expect(JSON.stringify(outcome)).not.toContain('invoice');
  });
});
