/** Answers that a client can name by their ids: it has the end of one when the log has it, unless the store takes too long. */
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { gatewayOf, replayed, send, sessionHeaders, useGateways } from '../../support/gateway.js';
import { answerAt } from '../../support/upstream.js';

const bench = useGateways({ worker: false });
const input = [{ role: 'user', content: 'Which colour?' }];
const frame = { input: 1, output: 1, model: 'm', id: 'answer' };

const given = answerAt('/v1/responses', { text: 'It is vermilion.' }, frame);
const answers = [
  { form: 'a stream', stream: true, bytes: Buffer.from(given.events.join('')), headers: {} },
  { form: 'a value', stream: false, bytes: Buffer.from(JSON.stringify(given.whole, null, 1)), headers: {} },
].flatMap((one) => [
  one,
  {
    ...{ form: `${one.form}, compressed`, stream: one.stream, bytes: gzipSync(one.bytes) },
    headers: { 'content-encoding': 'gzip' },
  },
]);

/** A gateway whose store begins to append an answer when `storing` resolves, and goes on when `goOn` is called. */
async function waiting(storeTimeoutMs: number) {
  const client = bench.stack.palimpsest.forTenant(bench.stack.queuePrefix);
  let begun: () => void = () => undefined;
  let goOn: () => void = () => undefined;
  const storing = new Promise<void>((resolve) => (begun = resolve));
  const goesOn = new Promise<void>((resolve) => (goOn = resolve));
  let syncs = 0;
  const slow: Partial<typeof client> = {
    policy: (request) => client.policy(request),
    syncSizes: async (request) => {
      if (++syncs === 2) {
        begun();
        await goesOn;
      }
      return client.syncSizes(request);
    },
  };
  const palimpsest = { ...bench.stack.palimpsest, forTenant: () => slow } as never;
  const upstreams = { scripted: bench.upstream.url };
  const started = await gatewayOf({ ...bench.stack, palimpsest }, { upstreams, storeTimeoutMs });
  bench.gateways.push(started);
  return { started, storing, goOn };
}

/** Sends the bytes in two parts; the first one ends within the last event. */
function replyWith({ stream, bytes, headers }: (typeof answers)[number]): void {
  bench.upstream.reply((_, response) => {
    const type = stream ? 'text/event-stream' : 'application/json';
    response.writeHead(200, { 'content-type': type, ...headers });
    response.write(bytes.subarray(0, -3), () => setImmediate(() => response.end(bytes.subarray(-3))));
  });
}

test.each(answers)('the end of $form waits until the answer is stored', async (answer) => {
  const session = `waits-${answer.form}`;
  const { started, storing, goOn } = await waiting(60_000);
  replyWith(answer);
  const order: string[] = [];
  const body = JSON.stringify({ model: 'gpt-4o', input, stream: answer.stream });
  const asked = send(`${started.address}/v1/responses`, { body, headers: sessionHeaders(session) });
  const ended = asked.then(() => order.push('the client has it'));
  await storing;
  order.push('it is being stored');
  // Time for the client to get what passes without waiting.
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setTimeout(resolve, 1));
  order.push('it goes on');
  goOn();
  await ended;
  expect(order).toEqual(['it is being stored', 'it goes on', 'the client has it']);
  expect((await asked).bytes.equals(answer.bytes)).toBe(true);
  expect(JSON.stringify(await replayed(bench.stack, session))).toContain('It is vermilion.');
});

test.each(answers)(
  'the end of $form waits no longer than a request may wait for its session',
  async (answer) => {
    const { started, goOn } = await waiting(5_000);
    replyWith(answer);
    const body = JSON.stringify({ model: 'gpt-4o', input, stream: answer.stream });
    const headers = sessionHeaders(`slow-${answer.form}`);
    const { bytes, headers: own } = await send(`${started.address}/v1/responses`, { body, headers });
    expect(bytes.equals(answer.bytes)).toBe(true);
    expect(own).not.toHaveProperty('x-palimpsest-bypassed');
    goOn();
  },
);

test.each(answers)('with store: false, the end of $form does not wait', async (answer) => {
  const { started } = await waiting(60_000);
  replyWith(answer);
  const body = JSON.stringify({ model: 'gpt-4o', input, stream: answer.stream, store: false });
  const headers = sessionHeaders(`free-${answer.form}`);
  const { bytes } = await send(`${started.address}/v1/responses`, { body, headers });
  expect(bytes.equals(answer.bytes)).toBe(true);
});
