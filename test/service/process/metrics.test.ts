/**
 * Logs and metrics of a worker in a separate process: the figures add up, and no text of a message appears. A planted secret is
 * in every message; the endpoint fails in ways that repeat it.
 */
import { createHash, randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { startApi } from '../../../src/api/server.js';
import { createLogger } from '../../../src/process/logging.js';
import { Metrics } from '../../../src/process/metrics.js';
import { samplesOf, startCliWorker, type CliWorker } from '../../support/cli-worker.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { about, contextOverflow, dropMidBody, empty, type Script } from '../../support/model-replies.js';
import { startStack, type Stack } from '../../support/stack.js';

describe('a worker process', () => {
  let stack: Stack;
  let worker: CliWorker;
  beforeEach(async () => {
    stack = await startStack({ worker: false });
    worker = await startCliWorker(stack, { LOG_LEVEL: 'trace', PALIMPSEST_TOKENS_PER_MINUTE: '1000000' });
  });
  afterEach(async () => {
    worker.signal('SIGKILL');
    await stack.stop();
  });

  const converse = async (session: string, secret: string): Promise<void> => {
    for (const [index, messages] of dialogue(20).entries()) {
      const secretly = messages.map((one) => ({ ...one, content: `${secret} ${String(one.content)}` }));
      await stack.palimpsest.appendTurn({
        session,
        turnId: `t-${index}`,
        messages: secretly,
        policy: smallPolicy,
      });
    }
    await stack.palimpsest.settled({ session });
  };

  test('counts its work, together with the metrics of the SDK', async () => {
    await converse('counted', 'x');
    const outcomes = await stack.palimpsest.compactions({ session: 'counted' });
    const { status } = await worker.page('/metrics');
    expect(status).toBe(200);
    let text = '';
    const sum = (metric: string) =>
      [...samplesOf(text, metric).values()].reduce((all, value) => all + value, 0);
    // Steps are counted when they end, a moment after the commit; their waits are counted when they begin.
    const running = () =>
      sum('palimpsest_activity_queue_wait_seconds_count') - sum('palimpsest_activity_seconds_count');
    await expect
      .poll(async () => {
        ({ text } = await worker.page('/metrics'));
        const ended = /^temporal_workflow_completed(?:_total)?\{/m.test(text);
        return [sum('palimpsest_compactions_total'), running(), ended];
      })
      .toEqual([outcomes.length, 0, true]);
    expect(samplesOf(text, 'palimpsest_compactions_total').keys().next().value).toBe(
      '{outcome="committed",reason="trigger",method="model"}',
    );
    const evicted = outcomes.reduce((all, outcome) => all + outcome.evicted, 0);
    expect(sum('palimpsest_evicted_messages_total')).toBe(evicted);
    expect(sum('palimpsest_model_calls_total')).toBe(stack.model.requests.length);
    expect(sum('palimpsest_model_answer_seconds_count')).toBe(stack.model.requests.length);
    const tokens = outcomes.reduce((all, one) => all + one.modelInputTokens + one.modelOutputTokens, 0);
    expect(sum('palimpsest_model_tokens_total')).toBe(tokens);
    const level = sum('palimpsest_token_bucket_level');
    expect(level).toBeGreaterThan(900_000);
    expect(level).toBeLessThanOrEqual(1_000_000);
    for (const activity of ['measure', 'summarizeChunk']) {
      const found = samplesOf(text, 'palimpsest_activity_seconds_count');
      expect(found.get(`{activity="${activity}",result="ok"}`)).toBeGreaterThan(0);
    }
    // The process, beside the SDK's core above.
    expect(text).toMatch(/^process_resident_memory_bytes /m);
    // A whole page that a scraper can read: no metric is declared twice.
    const types = [...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name);
    expect(new Set(types).size).toBe(types.length);

    // The log comes through a pipe.
    const lines = () => worker.log().filter(({ msg }) => msg === 'compaction committed');
    await expect.poll(lines).toHaveLength(outcomes.length);
    const committed = lines();
    expect(committed[0]).toMatchObject({ level: 'info', session: 'counted', generation: 1, method: 'model' });
  });

  test('shows no text of messages, however the endpoint fails', async () => {
    const secret = `Geheimnis${randomUUID().replaceAll('-', '')}`;
    const echo =
      (status: number): Script =>
      ({ body }) => ({
        status,
        body: { error: { message: `cannot do: ${JSON.stringify(body)}`, type: 'invalid' } },
      });
    const page: Script = ({ body }) => ({ status: 200, body: `<html>${JSON.stringify(body)}</html>` });
    stack.model.reply([
      ...[
        echo(500),
        echo(429),
        page,
        empty(),
        dropMidBody(),
        contextOverflow(`too long: ${secret} ${secret}`),
      ],
      ...[
        echo(503),
        about(`${secret} summary`),
        echo(400),
        echo(401),
        echo(400),
        echo(400),
        echo(400),
        echo(400),
      ],
    ]);
    for (const name of ['first', 'second', 'third']) await converse(name, secret);
    expect(stack.model.requests.length).toBeGreaterThan(8);
    const { text } = await worker.page('/metrics');
    const said = worker.output();
    expect(said).toContain('compaction committed');
    expect(said).toMatch(/Llm\.Unavailable|Llm\.RateLimited/);
    for (const [where, written] of [
      ['log', said],
      ['metrics', text],
    ]) {
      for (const hidden of [secret, secret.slice(0, 24), Buffer.from(secret).toString('base64').slice(0, 20)])
        expect(written?.includes(hidden), `${where} holds ${hidden}`).toBe(false);
    }
    // No id of a tenant or a session is a label.
    for (const id of [stack.queuePrefix, 'first', 'second', 'third'])
      expect(text.includes(`"${id}"`)).toBe(false);
  });

  test('logs the words of the endpoint, of which tenants get type and status', async () => {
    const words = 'no deployment for org-INTERNAL at llm-gw.internal:8443';
    stack.model.reply([
      () => ({ status: 404, body: { error: { message: words, code: 'model_not_found' } } }),
    ]);
    const policy = { ...smallPolicy, summary: { fallback: 'none' as const } };
    for (const [index, messages] of dialogue(6).entries())
      await stack.palimpsest.appendTurn({ session: 'refused', turnId: `t-${index}`, messages, policy });
    const failure = await stack.palimpsest.compact({ session: 'refused' }).catch((error: unknown) => error);
    expect(failure).toMatchObject({
      type: 'Llm.Rejected',
      message: 'The model endpoint refuses the request (404 model_not_found)',
      details: { status: 404 },
    });
    const { lastError } = await stack.palimpsest.status({ session: 'refused' });
    const shown = JSON.stringify([failure, (failure as Error).message, lastError]);
    for (const hidden of ['INTERNAL', 'internal', new URL(stack.model.url).host])
      expect(shown).not.toContain(hidden);
    const noted = () => worker.log().find(({ reason }) => String(reason).includes(words));
    await expect.poll(noted).toMatchObject({ level: 'warn', failure: 'Llm.Rejected' });
  });

  test('reports whether it is ready', async () => {
    expect(await worker.page('/healthz')).toEqual({ status: 200, text: 'ok\n' });
    const { status, text } = await worker.page('/readyz');
    expect(status).toBe(200);
    expect(JSON.parse(text)).toEqual({ ready: true, polling: true, postgres: null, temporal: null });
  });
});

describe('a log', () => {
  const written = (format: 'json' | 'text'): { log: ReturnType<typeof createLogger>; text: () => string } => {
    let text = '';
    const destination = { write: (line: string) => void (text += line) };
    return { log: createLogger({ level: 'info', format, destination }), text: () => text };
  };
  const failure = () => {
    const cause = Object.assign(new Error('new row violates a constraint'), {
      detail: 'Failing row contains (secret)',
    });
    return Object.assign(new Error('not stored', { cause }), {
      type: 'Store.Corrupt',
      parameters: ['secret'],
    });
  };

  test('is one JSON object per line; an error has only type, message and stack', () => {
    const { log, text } = written('json');
    log.error({ error: failure(), session: 's-1' }, 'step failed');
    log.debug('not at this level');
    const [line, ...rest] = text().trim().split('\n');
    expect(rest).toEqual([]);
    expect(JSON.parse(line ?? '')).toMatchObject({
      ...{ level: 'error', msg: 'step failed', session: 's-1' },
      error: {
        type: 'Store.Corrupt',
        message: 'not stored',
        cause: { message: 'new row violates a constraint' },
      },
    });
    expect(text()).not.toContain('secret');
  });

  test('is readable text on request', () => {
    const { log, text } = written('text');
    log.info({ session: 's-1', tokensBefore: 9_000 }, 'compaction committed');
    log.warn({ err: failure() }, 'step failed');
    expect(text()).toMatch(
      /^\d\d:\d\d:\d\d\.\d{3} INFO {2}compaction committed session=s-1 tokensBefore=9000$/m,
    );
    expect(text()).toMatch(/WARN {2}step failed\nError: not stored/);
    expect(text()).not.toContain('secret');
  });

  test('has no line, colour or direction that a text of a caller made', () => {
    const { log, text } = written('text');
    const forged = 'x\n23:59:59.999 ERROR token revoked\u001b[31m\r\u009b1m\u2028\u202e';
    const escaped = 'x\\u000a23:59:59.999 ERROR token revoked\\u001b[31m\\u000d\\u009b1m\\u2028\\u202e';
    log.info({ session: forged, nested: { [forged]: forged } }, forged);
    log.warn({ err: new Error(forged) }, 'step failed');
    log.warn({ err: forged }, 'step failed');
    const lines = text().split('\n');
    expect(lines[0]).toContain(` INFO  ${escaped} session=${escaped} nested=`);
    expect(lines[2]).toBe(`Error: ${escaped}`);
    // A frame keeps its line.
    expect(lines[3]).toMatch(/^ +at /);
    expect(lines.at(-2)).toBe(escaped);
    expect(text().replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Zl}\p{Bidi_Control}]/u);
    for (const line of lines) expect(line).not.toMatch(/^23:59:59/);
  });
});

test('the API counts its requests by pattern and status, not by path', async () => {
  const stack = await startStack({ worker: false });
  const metrics = new Metrics();
  const api = await startApi(
    { port: 0, observe: (request) => metrics.request(request), metrics: () => metrics.text() },
    stack.palimpsest,
  );
  try {
    const messages = [{ role: 'user', content: 'Hello' }];
    const body = JSON.stringify({ turnId: 't-1', messages });
    const headers = { 'content-type': 'application/json' };
    await fetch(`${api.address}/v1/sessions/s-17/turns`, { method: 'POST', headers, body });
    await fetch(`${api.address}/v1/sessions/s-17/context`);
    await fetch(`${api.address}/v1/sessions/s-18/context`);
    await fetch(`${api.address}/somewhere/s-19`);
    const text = await (await fetch(`${api.address}/metrics`)).text();
    const counts = samplesOf(text, 'palimpsest_http_request_seconds_count');
    expect(Object.fromEntries(counts)).toEqual({
      '{method="POST",route="/v1/sessions/:session/turns",status="200"}': 1,
      '{method="GET",route="/v1/sessions/:session/context",status="200"}': 1,
      '{method="GET",route="/v1/sessions/:session/context",status="404"}': 1,
      '{method="GET",route="none",status="404"}': 1,
    });
  } finally {
    await api.close();
    await stack.stop();
  }
});

test('labels have no text of a policy: models count by configured or registered name', async () => {
  const metrics = new Metrics(['our-summarizer', 'gpt-4o-mini-our-own']);
  const named = ['our-summarizer', 'gpt-4o-mini-our-own', 'gpt-4o-EVIL', 'openai/gpt-4o', 'EVIL\n"text"'];
  const unknown = Array.from({ length: 200 }, (_, index) =>
    createHash('sha256').update(String(index)).digest('hex'),
  );
  for (const model of [...named, ...unknown])
    metrics.modelAnswered({ model, result: 'ok', seconds: 1, inputTokens: 1 });
  for (const currency of unknown) metrics.spent(1, currency);
  for (const cost of [0.5, 1e304, Infinity, NaN, 0.25, 0.25]) metrics.spent(cost, 'EUR');
  const text = await metrics.text();
  expect(text).not.toContain('EVIL');
  expect(Object.fromEntries(samplesOf(text, 'palimpsest_model_calls_total'))).toEqual({
    '{model="our-summarizer",result="ok"}': 1,
    '{model="gpt-4o-mini-our-own",result="ok"}': 1,
    '{model="gpt-4o",result="ok"}': 2,
    '{model="other",result="ok"}': 201,
  });
  expect([...samplesOf(text, 'palimpsest_model_cost_total')]).toEqual([
    ['{currency="other"}', 200],
    ['{currency="EUR"}', 1],
  ]);
});
