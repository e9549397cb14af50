import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { ChatMessage, ToolCall } from '../../src/conversation/message.js';
import type { PolicyInput } from '../../src/policy/schema.js';
import { eraseSession } from '../../src/store/sessions/erase.js';
import { compactionWorkflowId, sessionWorkflowId, taskQueues } from '../../src/temporal/names.js';
import { smallPolicy, words } from '../support/dialogue.js';
import { wordsFrom } from '../support/material.js';
import {
  about,
  failure,
  materialOf,
  ok,
  refusalText,
  status,
  withWindow,
  type Script,
} from '../support/model-replies.js';
import type { RecordedRequest } from '../support/model-server.js';
import { appendTurns } from '../support/sessions.js';
import { chunky, startRecorder, talk, type Recorder } from './recorder.js';

let recorder: Recorder;

beforeAll(async () => {
  recorder = await startRecorder();
});

afterAll(() => recorder.close());

beforeEach(() => recorder.stack.model.reply([]));

const textOf = ({ body }: RecordedRequest) => body.messages.map(({ content }) => content).join('\n');
const isChunk = (request: RecordedRequest) => textOf(request).includes('<transcript');
const isRepair = (request: RecordedRequest) => textOf(request).includes('<state_snapshot');
const isConsolidation = (request: RecordedRequest) => /<digest \d{12} 1>/.test(textOf(request));

/** Plays the session and records its compaction, as `compaction-<session>`. */
async function recordCompaction(session: string, policy: PolicyInput): Promise<void> {
  await recorder.play(session, policy);
  await recordOf(session);
}

async function recordOf(session: string, name = session, generation = 1): Promise<void> {
  const { workflowId } = recorder.compactionOf(session, generation);
  await recorder.record(`compaction-${name}`, workflowId);
}

const sayOf = (session: string) => recorder.stack.palimpsest.compactions({ session });

test.for(['journal', 'incremental', 'full_rewrite'] as const)('%s: two generations', async (mode) => {
  const session = mode.replace('_', '-');
  const policy = { ...smallPolicy, summary: { chunkTokens: 500, mode } };
  await recordCompaction(session, policy);
  await recorder.play(session, policy, 36, 18);
  await recordOf(session, `${session}-again`, 2);
});

test('all in one request', async () => {
  await recordCompaction('fold', smallPolicy);
});

test('answers as JSON', async () => {
  recorder.stack.model.reply((request) =>
    ok(JSON.stringify({ state: [wordsFrom(materialOf(request)).join(', ')] }))(request),
  );
  await recordCompaction('structured', chunky);
});

test('no model', async () => {
  await recordCompaction('extractive', { ...smallPolicy, summary: { method: 'extractive' } });
});

test('nothing to do', async () => {
  const session = 'nothing';
  await recorder.play(session, smallPolicy, 1);
  const ids = recorder.ids(session);
  // A session's own workflow does not start it then; one that runs may still find that nothing is left.
  await recorder.client.workflow.execute('compaction', {
    workflowId: compactionWorkflowId(ids, 1),
    taskQueue: taskQueues(recorder.stack.queuePrefix).workflow,
    args: [{ v: 1, ...ids, reason: 'trigger', force: false }],
  });
  await recordOf(session);
});

test('a chunk that does not fit is halved', async () => {
  recorder.stack.model.reply(withWindow(1_800));
  await recordCompaction('halved', smallPolicy);
});

test('a snapshot that is too long is repaired', async () => {
  const long = ok(`## Current state\n- ${words(2_000)}`.slice(0, 6_000));
  recorder.stack.model.reply((request) =>
    (isRepair(request) ? about('## Current state\n- In short.') : long)(request),
  );
  await recordCompaction('repaired-too-long', smallPolicy);
});

test('the repair fails, and the first snapshot is judged', async () => {
  const long = ok(`## Current state\n- ${words(2_000)}`.slice(0, 6_000));
  recorder.stack.model.reply((request) =>
    (isRepair(request) ? status(400, failure('no such thing')) : long)(request),
  );
  await recordCompaction('repair-failed', smallPolicy);
});

test('a snapshot without a fact and a pinned rule is repaired', async () => {
  const session = 'repaired-dropped';
  const { palimpsest, model } = recorder.stack;
  const fact = 'PROJECT_FACT|code=ORBIT|owner=Ada Lovelace|risk=low';
  model.reply((request) =>
    about(isRepair(request) ? `## Facts from tools\n- ${fact}` : '## Current state\n- Read.')(request),
  );
  const look: ToolCall = {
    id: 'c-1',
    type: 'function',
    function: { name: 'look_up', arguments: '{"project":"orbit"}' },
  };
  const tools: ChatMessage[] = [
    { role: 'user', content: 'Look it up.' },
    { role: 'assistant', content: null, tool_calls: [look] },
    { role: 'tool', tool_call_id: 'c-1', content: fact },
  ];
  const policy: PolicyInput = {
    ...smallPolicy,
    pins: ['Never deploy on Fridays.'],
    summary: { chunkTokens: 500, ledgerTokens: 0 },
  };
  await appendTurns(palimpsest, session, [tools, ...talk(session, 17)], { policy });
  await palimpsest.settled({ session });
  expect(model.requests.some(isRepair)).toBe(true);
  await recordOf(session);
});

test('a refused chunk is written by rule, and later by a model', async () => {
  const session = 'chunk-by-rule';
  const { palimpsest, model } = recorder.stack;
  const troubled: Script = (request) =>
    (isChunk(request) && textOf(request).includes('Request 3:') ? refusalText() : ok())(request);
  model.reply(troubled);
  await recordCompaction(session, chunky);
  expect((await sayOf(session))[0]).toMatchObject({ method: 'model', chunksByRule: 1 });
  model.reply([]);
  expect(await palimpsest.resummarize({ session })).toMatchObject({ chunksByRule: 0 });
  await recordOf(session, 'resummarized', 2);
  await recorder.record('session-resummarized', sessionWorkflowId(recorder.ids(session)));
});

test('the deadline passes: the fallback serves, or nothing does', async () => {
  recorder.stack.model.reply(status(500));
  await recordCompaction('fallback', { ...smallPolicy, summary: { deadline: 1_500 } });
  await recordCompaction('unchanged', { ...smallPolicy, summary: { deadline: 1_500, fallback: 'none' } });
});

test('a key that is not accepted: the fallback serves at once', async () => {
  recorder.stack.model.reply(status(401, failure('no such key')));
  await recordCompaction('locked-out', chunky);
});

test('a result that is not smaller is refused', async () => {
  recorder.stack.model.reply(ok(words(6_000)));
  await recordCompaction('refused', { ...smallPolicy, summary: { fallback: 'none' } });
  expect(await sayOf('refused')).toEqual([]);
});

test('a large message is summarized alone', async () => {
  const session = 'large-message';
  const { palimpsest } = recorder.stack;
  const large = `BEGINNING of the report. ${words(2_400)} END of the report.`;
  const turns: ChatMessage[][] = [
    [{ role: 'user', content: 'Write the report.' }],
    [{ role: 'assistant', content: large }],
    ...talk(session, 5),
  ];
  const policy: PolicyInput = {
    ...smallPolicy,
    keep: { messages: 12 },
    summary: { minGain: 0.05, chunkTokens: 500 },
  };
  await appendTurns(palimpsest, session, turns, { policy });
  await palimpsest.settled({ session });
  await recordOf(session);
});

test('one waits for the answers to the requests of another', async () => {
  const { palimpsest, model } = recorder.stack;
  await recorder.play('asking', { ...chunky, contextWindow: 64_000 });
  await palimpsest.fork({ session: 'asking', to: 'waiting', throughSeq: 36 });
  model.hold();
  const asked = model.requests.length;
  const compacting = ['asking', 'waiting'].map((session) => palimpsest.compact({ session }));
  await model.waitForRequests(asked + 4);
  /** `PENDING_ACTIVITY_STATE_STARTED` of Temporal's API. */
  const started = 2;
  const begun = async (session: string) => {
    const { raw } = await recorder.compactionOf(session).describe();
    return (raw.pendingActivities ?? []).some(
      ({ activityType, state }) => activityType?.name === 'summarizeChunk' && Number(state) === started,
    );
  };
  for (const session of ['asking', 'waiting'])
    await expect.poll(() => begun(session).catch(() => false)).toBe(true);
  model.release();
  await Promise.all(compacting);
  for (const session of ['asking', 'waiting']) await recordOf(session);
});

const deleteDigests = () =>
  recorder.pool.query(
    `delete from palimpsest.digests d where not exists (
       select from palimpsest.compaction_digests u where u.tenant_id = d.tenant_id and u.key = d.key)`,
  );

test('deleted answers are requested again, at most three times', async () => {
  let gone = 0;
  recorder.stack.model.reply(async (request) => {
    if (isConsolidation(request) && ++gone === 1) await deleteDigests();
    return ok()(request);
  });
  await recordCompaction('asked-again', chunky);
  recorder.stack.model.reply(async (request) => {
    await deleteDigests();
    return ok()(request);
  });
  await recordCompaction('answers-vanish', { ...smallPolicy, summary: { chunkTokens: 500, concurrency: 1 } });
  expect(await sayOf('answers-vanish')).toEqual([]);
});

test('cancelled in the middle of a model call', async () => {
  const session = 'cancelled';
  const { palimpsest, model } = recorder.stack;
  model.hold();
  const asked = model.requests.length;
  await appendTurns(palimpsest, session, talk(session, 18), { policy: smallPolicy });
  await model.waitForRequests(asked + 1);
  await recorder.compactionOf(session).cancel();
  await palimpsest.settled({ session });
  model.release();
  await recordOf(session);
});

test('the session is erased and begun again meanwhile', async () => {
  const session = 'erased';
  const { palimpsest, model } = recorder.stack;
  model.hold();
  const asked = model.requests.length;
  await appendTurns(palimpsest, session, talk(session, 18), { policy: smallPolicy });
  await model.waitForRequests(asked + 1);
  const run = async () => (await recorder.sessionOf(session).describe()).runId;
  const first = await run();
  await eraseSession(recorder.pool, recorder.ids(session));
  await appendTurns(palimpsest, session, talk('anew', 2), { policy: smallPolicy });
  model.release();
  await palimpsest.configure({ session, policy: smallPolicy });
  await expect.poll(run).not.toBe(first);
  await palimpsest.settled({ session });
  await recordOf(session);
  const workflowId = sessionWorkflowId(recorder.ids(session));
  await recorder.record('session-erased', workflowId, first);
  await recorder.record('session-begun-anew', workflowId);
});
