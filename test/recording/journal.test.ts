import { afterAll, beforeAll, beforeEach, test } from 'vitest';
import type { PolicyInput } from '../../src/policy/schema.js';
import { aheadWorkflowId } from '../../src/temporal/names.js';
import { dialogue, smallPolicy } from '../support/dialogue.js';
import { contentFilter, notesOn, ok, type Script } from '../support/model-replies.js';
import type { RecordedRequest } from '../support/model-server.js';
import { appendTurns } from '../support/sessions.js';
import { startRecorder, type Recorder } from './recorder.js';

let recorder: Recorder;

const policy: PolicyInput = { ...smallPolicy, summary: { mode: 'journal' }, memory: { eager: false } };
const eager: PolicyInput = { ...policy, memory: { eager: true } };
/** Several chunks in a compaction: a separate request for the state. */
const chunked: PolicyInput = { ...policy, summary: { mode: 'journal', chunkTokens: 500 } };

/** Nine tenths of the trigger of a window of 4,000 tokens. */
const nearTrigger = 0.9 * 3_150;

const textOf = ({ body }: RecordedRequest) => body.messages.at(-1)?.content ?? '';
const answers: Script = (request) => ok(notesOn(textOf(request)))(request);
const refusesMerges: Script = (request) =>
  (textOf(request).startsWith('<notes ') ? contentFilter() : answers)(request);

beforeAll(async () => {
  recorder = await startRecorder();
});

afterAll(() => recorder.close());

beforeEach(() => recorder.stack.model.reply(answers));

async function recordCompaction(session: string, generation: number, name = session): Promise<void> {
  const { workflowId } = recorder.compactionOf(session, generation);
  await recorder.record(`compaction-${name}`, workflowId);
}

/** Turns one by one from `from` on, up to the generation; answers how many there are by then. */
async function playUntil(session: string, generation: number, given: PolicyInput, from = 0): Promise<number> {
  for (let turn = from; turn < 120; turn++) {
    await recorder.play(session, given, turn + 1, turn);
    const done = await recorder.stack.palimpsest.compactions({ session });
    if ((done.at(-1)?.generation ?? 0) >= generation) return turn + 1;
  }
  throw new Error(`${session} has no generation ${generation} after 120 turns`);
}

test('one request; several, with one for the state', async () => {
  await playUntil('journal-one', 1, policy);
  await recordCompaction('journal-one', 1);
  await recorder.play('journal-state', chunked);
  await recordCompaction('journal-state', 1);
});

test('entries are merged, by a model and by rule', async () => {
  for (const [name, script] of [['merged', answers] as const, ['merged-by-rule', refusesMerges] as const]) {
    recorder.stack.model.reply(script);
    const session = `journal-${name}`;
    let [merged, turns] = [0, 0];
    for (let generation = 1; merged === 0; generation++) {
      turns = await playUntil(session, generation, policy, turns);
      const { journal } = await recorder.stack.palimpsest.status({ session });
      if (journal?.entries.some(({ rank }) => rank > 0)) merged = generation;
    }
    await recordCompaction(session, merged);
  }
});

test('written ahead, found by the compaction, and by the session', async () => {
  await playUntil('journal-ahead', 1, eager);
  await recorder.record('ahead', aheadWorkflowId(recorder.ids('journal-ahead'), 0));
  await recordCompaction('journal-ahead', 1);
  await recorder.record('session-ahead', recorder.sessionOf('journal-ahead').workflowId);
});

test('a request that fails ahead is repeated by the compaction', async () => {
  const session = 'journal-unheard';
  recorder.stack.model.reply(contentFilter());
  const ahead = aheadWorkflowId(recorder.ids(session), 0);
  let turn = 0;
  const begun = async () =>
    recorder.client.workflow
      .getHandle(ahead)
      .describe()
      .then(() => true)
      .catch(() => false);
  for (; turn < 40 && !(await begun()); turn++) await recorder.play(session, eager, turn + 1, turn);
  await recorder.client.workflow.getHandle(ahead).result();
  await recorder.record('ahead-failed', ahead);
  recorder.stack.model.reply(answers);
  await appendTurns(recorder.stack.palimpsest, session, dialogue(turn + 12).slice(turn), { from: turn });
  await recorder.stack.palimpsest.settled({ session });
  await recordCompaction(session, 1);
});

test('ended by a pause, and written after it', async () => {
  const session = 'journal-paused';
  const { palimpsest, model } = recorder.stack;
  const before = model.requests.length;
  model.hold();
  const tokens = async () => (await palimpsest.status({ session })).tokens;
  for (let turn = 0; turn === 0 || (await tokens()) < nearTrigger; turn++)
    await recorder.play(session, eager, turn + 1, turn);
  await model.waitForRequests(before + 1);
  await palimpsest.pause({ session });
  await model.waitUntil(() => model.requests[before]!.aborted, 'the request is given up');
  model.release();
  await recorder.record('ahead-given-up', aheadWorkflowId(recorder.ids(session), 0));
  await palimpsest.resume({ session });
  await model.waitForRequests(before + 2);
  await palimpsest.settled({ session });
  await recorder.record('session-ahead-given-up', recorder.sessionOf(session).workflowId);
});
