/**
 * Endpoints accept different parameters. A refused parameter is learnt once for each model, so that it is not refused on every
 * call. A limit too low for a reasoning model is raised once, within the call.
 */
import { describe, expect, test } from 'vitest';
import { failureOf, useModelClient } from '../../support/model-client.js';
import * as model from '../../support/model-replies.js';

const llm = useModelClient();
const error = (message: string, code: string | null = null) => model.failure(message, code);

describe('the parameters of an endpoint are learnt from its refusals and remembered for the model', () => {
  test('max_completion_tokens', async () => {
    llm.server.reply(model.requiresMaxCompletionTokens());
    expect((await llm.summarize()).calls).toBe(2);
    expect((await llm.summarize()).calls).toBe(1);
    expect(llm.server.requests.map(({ body }) => [body.max_tokens, body.max_completion_tokens])).toEqual([
      [500, undefined],
      [undefined, 500],
      [undefined, 500],
    ]);
    expect((await llm.summarize({ model: 'another' })).calls).toBe(2);
  });

  test('max_tokens, for a reasoning model at a strict endpoint', async () => {
    llm.server.reply(model.requiresMaxTokens());
    expect((await llm.summarize({ model: 'openai/o3-mini' })).calls).toBe(2);
    expect((await llm.summarize({ model: 'openai/o3-mini' })).calls).toBe(1);
    expect(llm.server.requests.at(-1)!.body).toMatchObject({ max_tokens: 500 });
  });

  test('no temperature', async () => {
    llm.server.reply(model.refusesTemperature());
    expect((await llm.summarize()).calls).toBe(2);
    expect((await llm.summarize()).calls).toBe(1);
    expect(llm.server.requests.map(({ body }) => body.temperature)).toEqual([0, undefined, undefined]);
  });

  test('both at once', async () => {
    llm.server.reply(model.requiresMaxCompletionTokens(model.refusesTemperature()));
    expect((await llm.summarize()).calls).toBe(3);
    expect((await llm.summarize()).calls).toBe(1);
  });

  test('by concurrent calls, each once', async () => {
    llm.server.hold();
    llm.server.reply(model.requiresMaxCompletionTokens());
    const both = Promise.all([llm.summarize(), llm.summarize()]);
    await llm.server.waitForRequests(2);
    llm.server.release();
    expect((await both).map(({ calls }) => calls)).toEqual([2, 2]);
    expect((await llm.summarize()).calls).toBe(1);
  });

  test('reasoning models are known by name', async () => {
    llm.server.reply(model.requiresMaxCompletionTokens(model.refusesTemperature()));
    for (const name of ['o1', 'o4-mini', 'gpt-5-nano', 'openai/gpt-5'])
      expect((await llm.summarize({ model: name })).calls).toBe(1);
  });

  test.each([
    'max_tokens is too large: 500. This model supports at most 400 completion tokens, whereas you provided 500.',
    'max_tokens: 500 > 400, which is the maximum allowed number of output tokens for test-model',
    'Invalid max_tokens value, the valid range of max_tokens is [1, 400]',
    '`max_tokens` must be less than or equal to `400`, the maximum value for `max_tokens`',
  ])('the largest limit: %s', async (message) => {
    llm.server.reply((request) =>
      (model.limitOf(request) > 400 ? model.status(400, error(message)) : model.ok())(request),
    );
    expect((await llm.summarize()).calls).toBe(2);
    expect((await llm.summarize()).calls).toBe(1);
    expect(llm.limits()).toEqual([500, 400, 400]);
  });

  test('an endpoint that refuses everything gets a bounded number of requests', async () => {
    llm.server.reply(({ body }) => {
      const field = body.max_tokens === undefined ? 'max_completion_tokens' : 'max_tokens';
      return {
        status: 400,
        body: model.failure(`Unsupported parameter: '${field}'`, 'unsupported_parameter', field),
      };
    });
    expect((await failureOf(llm.summarize())).type).toBe('Llm.Rejected');
    expect(llm.server.requests.length).toBeLessThanOrEqual(6);
  });
});

describe('a truncated answer', () => {
  test('raises the limit once, in the same call, then is Llm.BadOutput', async () => {
    llm.server.reply(model.cutOff('Half of a'));
    const failure = await failureOf(llm.summarize());
    expect([failure.type, failure.message]).toEqual(['Llm.BadOutput', expect.stringContaining('cut off')]);
    expect(failure.details).toMatchObject({ finish: 'length', calls: 2 });
    expect(llm.limits()).toEqual([500, 1_000]);
  });

  test('is complete with the higher limit', async () => {
    llm.server.reply([model.cutOff('Half'), model.ok('Whole.')]);
    const answer = await llm.summarize();
    expect(answer).toMatchObject({ text: 'Whole.', calls: 2 });
    expect(answer.inputTokens).toBe(2 * model.countPrompt(llm.server.requests[0]!));
    await llm.summarize();
    expect(llm.limits()).toEqual([500, 1_000, 500]);
  });

  test('raises the limit fourfold if thoughts used it up, remembered for the model', async () => {
    llm.server.reply(model.thinking(1_500, 'Thought through.'));
    expect(await llm.summarize()).toMatchObject({ text: 'Thought through.', calls: 2 });
    expect(await llm.summarize()).toMatchObject({ text: 'Thought through.', calls: 1 });
    expect(llm.limits()).toEqual([500, 2_000, 2_000]);
  });

  test('does not remember a limit for endless thoughts', async () => {
    llm.server.reply(model.thinking(100_000));
    expect((await failureOf(llm.summarize())).type).toBe('Llm.BadOutput');
    expect((await failureOf(llm.summarize())).type).toBe('Llm.BadOutput');
    expect(llm.limits()).toEqual([500, 2_000, 500, 2_000]);
  });

  test('stays inside the window', async () => {
    llm.server.reply(model.thinking(1_000, 'Fits.'));
    expect((await llm.summarize({ window: 1_242 })).text).toBe('Fits.');
    expect(llm.limits()).toEqual([500, 1_200]);
  });

  test('is not repeated if the window has no room for a higher limit', async () => {
    llm.server.reply(model.thinking(1_000));
    expect((await failureOf(llm.summarize({ window: 542 }))).type).toBe('Llm.BadOutput');
    expect(llm.limits()).toEqual([500]);
  });

  test('a remembered limit that does not fit with a prompt is lowered', async () => {
    llm.server.reply([model.thinking(1_500, 'One.'), model.thinking(1_500, 'One.')]);
    await llm.summarize();
    llm.server.reply(model.withWindow(1_000, model.ok('Two.')));
    expect((await llm.summarize()).text).toBe('Two.');
    expect(llm.limits()).toEqual([500, 2_000, 2_000, 500]);
  });
});
