/**
 * A summary is requested by schema if the endpoint accepts one. After a refusal, requests have no schema. An endpoint that
 * ignores the schema answers Markdown, which is also a valid summary.
 */
import { describe, expect, test } from 'vitest';
import { defaultPrompt, chunkRequest, promptSettings } from '../../../src/summary/ask/prompts.js';
import { readSummary } from '../../../src/summary/answer/structured.js';
import { never, useModelClient } from '../../support/model-client.js';
import * as model from '../../support/model-replies.js';

const llm = useModelClient();
const request = chunkRequest({ transcript: 'user: hi', key: 'k', maxTokens: 500 });

const summarize = (asked = request, name = 'test-model') =>
  llm.client.summarize(asked, { model: name, expectedInputTokens: 400, signal: never });

/** Refuses a schema with this message, and answers what comes without. */
const refusing =
  (message: string, status = 400, param: string | null = null): model.Script =>
  (received) =>
    received.body.response_format === undefined
      ? model.ok()(received)
      : { status, body: model.failure(message, null, param) };

describe('the schema of a summary', () => {
  test('is sent in the form of OpenAI: strict, an array of strings per section', async () => {
    llm.server.reply(model.ok('{"intent":["Ship it"]}'));
    const answer = await summarize();
    const sent = llm.server.requests[0]?.body.response_format;
    expect(sent).toMatchObject({ type: 'json_schema', json_schema: { name: 'summary', strict: true } });
    expect(sent?.json_schema?.schema).toMatchObject({
      type: 'object',
      additionalProperties: false,
      required: ['intent', 'constraints', 'decisions', 'artifacts', 'facts', 'state', 'next'],
      properties: { intent: { type: 'array', items: { type: 'string' } } },
    });
    expect(readSummary(answer.text, defaultPrompt)).toBe('## Session intent\n- Ship it');
  });

  test('is not sent if the policy turns it off', async () => {
    const prompt = promptSettings({ prompt: null, sections: null, structured: 'off' });
    await summarize(chunkRequest({ transcript: 'user: hi', key: 'k', maxTokens: 500, prompt }));
    expect(llm.server.requests[0]?.body.response_format).toBeUndefined();
  });

  const refusals: [who: string, message: string, status?: number, param?: string][] = [
    [
      'OpenAI, older models',
      "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
    ],
    ['by parameter alone', 'Unsupported value.', 400, 'response_format.type'],
    ['DeepSeek', 'This response_format type is unavailable now'],
    ['llama.cpp', "response_format type must be one of 'text' or 'json_object', but got: json_schema"],
    ['FastAPI', 'Extra inputs are not permitted: response_format', 422],
    ['OpenRouter', 'No endpoints found that can handle the requested parameters: structured_outputs', 404],
    ['vLLM without a backend', 'Failed to compile grammar for guided decoding', 500],
  ];
  test.each(refusals)(
    'refused in the words of %s is never sent to that model again',
    async (_who, message, status, param) => {
      llm.server.reply(refusing(message, status, param ?? null));
      expect((await summarize()).calls).toBe(2);
      expect((await summarize()).calls).toBe(1);
      expect(llm.server.requests.map(({ body }) => body.response_format !== undefined)).toEqual([
        true,
        false,
        false,
      ]);
      expect((await summarize(request, 'another')).calls).toBe(2);
    },
  );

  test('a refusal for another reason does not turn it off', async () => {
    llm.server.reply(model.refusesTemperature());
    await summarize();
    expect(llm.server.requests.every(({ body }) => body.response_format !== undefined)).toBe(true);
  });

  test('an overflow does not turn it off', async () => {
    llm.server.reply(model.contextOverflow());
    await expect(summarize()).rejects.toMatchObject({ type: 'Llm.ContextOverflow' });
    expect(llm.server.requests).toHaveLength(1);
  });

  test('can be ignored by the endpoint: the answer is read as Markdown', async () => {
    llm.server.reply(model.ok('## Decisions\n- Use port 0'));
    expect(readSummary((await summarize()).text, defaultPrompt)).toBe('## Decisions\n- Use port 0');
  });
});
