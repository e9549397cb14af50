/** Sessions of the Agents SDK for JavaScript: its items are logged, and a context goes back through its own requests. */
import { Agent, type AgentInputItem, OpenAIProvider, Runner } from '@openai/agents';
import OpenAI from 'openai';
import { expect, it } from 'vitest';
import type { Json } from '../../../src/conversation/message.js';
import { logged, shown } from '../../support/formats.js';

const items: AgentInputItem[] = [
  { role: 'user', content: 'What does invoice 7 say?' },
  { type: 'function_call', callId: 'a', name: 'read', arguments: '{"invoice":7}', status: 'completed' },
  {
    type: 'function_call_result',
    callId: 'a',
    name: 'read',
    status: 'completed',
    output: { type: 'text', text: '42 euros' },
  },
  {
    type: 'message',
    role: 'assistant',
    status: 'completed',
    content: [{ type: 'output_text', text: '42 euros.' }],
  },
  { role: 'user', content: [{ type: 'input_text', text: 'Thanks.' }] },
];

it('the SDK sends the items of a context as they are', async () => {
  const { messages } = shown(logged([items as Json[]], 'openai-agents'), 'openai-responses');
  const context = messages as { id?: string }[];
  const sent: { input: Json[] }[] = [];
  const answered = { id: 'resp_1', object: 'response', output: [], usage: null };
  const openAIClient = new OpenAI({
    apiKey: 'none',
    fetch: async (_, request) => {
      sent.push(JSON.parse(String(request?.body)) as { input: Json[] });
      return Response.json({ ...answered, output: [said] });
    },
  });
  const said = {
    ...{ type: 'message', id: 'msg_1', role: 'assistant', status: 'completed' },
    content: [{ type: 'output_text', text: 'You are welcome.', annotations: [] }],
  };
  const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient }), tracingDisabled: true });
  const { newItems } = await runner.run(
    new Agent({ name: 'support' }),
    context.map((item): AgentInputItem => ({ type: 'unknown', id: item.id, providerData: item })),
  );
  expect(sent.map(({ input }) => input)).toEqual([messages]);
  expect(messages).toHaveLength(items.length);
  // The items that the run made are the next turn.
  const made = newItems.map(({ rawItem }) => rawItem as unknown as Json);
  const [message] = logged([made], 'openai-agents');
  expect(message?.message).toMatchObject({ role: 'assistant', content: 'You are welcome.' });
});
