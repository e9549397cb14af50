/**
 * A compaction that has read a message before its erasure commits and stores nothing of it, at whichever step the erasure comes:
 * during each kind of model call, between the answers and the commit, and while the worker is gone.
 */
import { randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { eagerFrom } from '../../../src/limits/limits.js';
import { columnsHolding } from '../../support/columns.js';
import { dialogue } from '../../support/dialogue.js';
import { completion, notesOn, type Script } from '../../support/model-replies.js';
import type { RecordedRequest } from '../../support/model-server.js';
import { openPool } from '../../support/pool.js';
import { startStack, type Stack } from '../../support/stack.js';
import type { RunningWorker } from '../../../src/worker/worker.js';

let stack: Stack;
let pool: Pool;
let worker: RunningWorker;

beforeAll(async () => {
  stack = await startStack({ worker: false });
  worker = await stack.work();
  pool = openPool(stack.databaseUrl);
});

afterAll(async () => {
  await pool.end();
  await stack.stop();
});

afterEach(() => stack.model.reply([]));

const planted = /planted-[0-9a-f]{12}/g;

const kinds = {
  notes: /<\d{3}>\d+ \w+/,
  state: /Now write "## State"/,
  'a merge of notes': /^These notes of the memory/m,
  'a chunk': /<transcript /,
  'a snapshot of digests': /<digest \d{12} 1>/,
};

const askedBy = ({ body }: RecordedRequest) => body.messages.map(({ content }) => content).join('\n');

/** Repeats the planted texts that the request shows. */
const copies: Script = (request) => {
  const asked = askedBy(request);
  const found = [...new Set(asked.match(planted) ?? [])];
  const material = request.body.messages.at(-1)?.content ?? '';
  const isNotes = /^Now write "## (?:Notes|State)"|^These notes of the memory/m.test(material);
  const lines = [...new Set(asked.match(/\b(?:Request|Answer) \d+: \w+ \w+ \w+/g) ?? [])].slice(0, 8);
  const content = isNotes
    ? notesOn(material, [`- next: ${found.join(' ')} [m1]`]).replace(
        '## Notes',
        ['## Notes', ...found.map((text) => `- Said: ${text} [m1]`)].join('\n'),
      )
    : ['## Current state', ...[...lines, ...found].map((line) => `- ${line}`)].join('\n');
  return completion(request, { message: { content }, finish: 'stop', output: content, withoutUsage: true });
};

const policyOf = (mode: 'journal' | 'incremental'): PolicyInput => ({
  contextWindow: 4_000,
  trigger: { fraction: 0.99 },
  memory: { eager: false },
  summary: { mode, contextWindow: 16_000, chunkTokens: 500 },
});

interface Planted {
  session: string;
  text: string;
}

async function fill(mode: 'journal' | 'incremental', count = 14): Promise<Planted> {
  const session = randomUUID();
  const text = `planted-${randomUUID().slice(-12)}`;
  const messages = dialogue(count).flat();
  messages[2] = { role: 'user', content: `Request 2: ${text} ${String(messages[2]!.content)}` };
  await stack.palimpsest.appendTurn({ session, turnId: 't', messages, policy: policyOf(mode) });
  return { session, text };
}

async function expectGone({ session, text }: Planted): Promise<void> {
  await stack.palimpsest.settled({ session });
  expect(await columnsHolding(pool, [text])).toEqual([]);
  const replay = [];
  for await (const message of stack.palimpsest.replay({ session })) replay.push(message);
  expect(JSON.stringify([replay, await stack.palimpsest.context({ session })])).not.toContain(text);
  const done = await stack.palimpsest.compactions({ session });
  expect(done.length).toBeGreaterThan(0);
}

const erase = ({ session }: Planted) => stack.palimpsest.eraseMessages({ session, seqs: [3] });

describe.each(['journal', 'incremental'] as const)('in %s mode, an erasure', (mode) => {
  test('during any of the model calls leaves nothing of the message', async () => {
    // The number of calls of an undisturbed compaction.
    stack.model.reply(copies);
    const before = stack.model.requests.length;
    const undisturbed = await fill(mode);
    await stack.palimpsest.compact({ session: undisturbed.session });
    await stack.palimpsest.settled({ session: undisturbed.session });
    const requests = stack.model.requests.slice(before);
    const met = Object.entries(kinds).filter(([, mark]) => requests.some((one) => mark.test(askedBy(one))));
    expect(met.map(([kind]) => kind)).toEqual(
      expect.arrayContaining(mode === 'journal' ? ['notes'] : ['a chunk', 'a snapshot of digests']),
    );
    await erase(undisturbed);
    await expectGone(undisturbed);

    for (let at = 0; at < requests.length; at++) {
      const one = await fill(mode);
      let asked = 0;
      let erased = false;
      stack.model.reply(async (request) => {
        if (askedBy(request).includes(one.text) && asked++ === at) {
          await erase(one);
          erased = true;
        }
        return copies(request);
      });
      await stack.palimpsest.compact({ session: one.session }).catch(() => null);
      if (!erased) await erase(one);
      await stack.palimpsest.compact({ session: one.session });
      await expectGone(one);
    }
  });

  test('after paid answers, while the worker is gone, leaves nothing of the message', async () => {
    const one = await fill(mode);
    const stored = () => expect.poll(() => columnsHolding(pool, [one.text])).toContain('digests.text');
    let hold = true;
    stack.model.reply(async (request) => {
      const asked = askedBy(request);
      const other =
        mode === 'journal' ? !asked.includes(one.text) : kinds['a snapshot of digests'].test(asked);
      if (hold && other) {
        hold = false;
        await stored();
        void worker.shutdown();
        await worker.finished.catch(() => undefined);
      }
      return copies(request);
    });
    const compacting = stack.palimpsest.compact({ session: one.session }).catch(() => null);
    await expect.poll(() => hold).toBe(false);
    await worker.finished.catch(() => undefined);
    expect(await columnsHolding(pool, [one.text])).toContain('digests.text');
    await erase(one);
    expect(await columnsHolding(pool, [one.text])).toEqual([]);
    worker = await stack.work();
    await compacting;
    await stack.palimpsest.compact({ session: one.session }).catch(() => null);
    await expectGone(one);
  });
});

test('what was written ahead is deleted, and written again without the message', async () => {
  const session = randomUUID();
  const text = `planted-${randomUUID().slice(-12)}`;
  const one = { session, text };
  stack.model.reply(copies);
  const policy: PolicyInput = { contextWindow: 4_000, summary: { mode: 'journal' }, memory: { eager: true } };
  const turns = dialogue(40);
  turns[1]![0]!.content = `Request 2: ${text} ${String(turns[1]![0]!.content)}`;
  const ahead = async () =>
    (
      await pool.query(
        `select from palimpsest.digest_holds h join palimpsest.digests d on d.tenant_id = h.tenant_id and d.key = h.key
         where h.tenant_id = $1 and h.session_id = $2 and h.run_id = 'ahead' and strpos(d.text, $3) > 0`,
        [stack.queuePrefix, session, text],
      )
    ).rowCount;
  for (const [index, messages] of turns.entries()) {
    await stack.palimpsest.appendTurn({
      ...{ session, turnId: `t-${index}`, messages },
      ...(index === 0 ? { policy } : {}),
    });
    await stack.palimpsest.settled({ session });
    if ((await stack.palimpsest.timeline({ session })).tokens >= eagerFrom(3_150)) break;
  }
  await expect.poll(ahead).toBe(1);
  await erase(one);
  expect(await ahead()).toBe(0);
  await stack.palimpsest.compact({ session });
  await expectGone(one);
});
