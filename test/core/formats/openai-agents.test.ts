/** Sessions of the Agents SDK for JavaScript: its items are logged, and a context goes back through its own requests. */
import { Agent, type AgentInputItem, OpenAIProvider, Runner } from '@openai/agents';
import OpenAI from 'openai';
import { expect, it } from 'vitest';
import type { Json } from '../../../src/conversation/message.js';
import { openaiResponses } from '../../../src/formats/openai-responses.js';
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

it('asks for the same as the SDK, for every kind of item that has an equivalent', async () => {
  const own: AgentInputItem[] = [
    { role: 'system', content: 'Be brief.' },
    {
      role: 'user',
      content: [
        { type: 'input_text', text: 'What is on these?' },
        { type: 'input_image', image: 'data:image/png;base64,AAAA' },
        { type: 'input_image', image: { id: 'file-1' }, detail: 'low' },
        { type: 'input_file', file: 'data:application/pdf;base64,AAAA', filename: 'a.pdf' },
        { type: 'input_file', file: { id: 'file-2' } },
        { type: 'input_file', file: { url: 'https://files.example/b.pdf' } },
      ],
    },
    {
      ...{ type: 'reasoning', id: 'rs_1' },
      content: [{ type: 'input_text', text: 'Two pictures.', providerData: { type: 'summary_text' } }],
      providerData: { id: 'rs_1', type: 'reasoning', encrypted_content: 'gAAAA' },
    },
    { type: 'function_call', callId: 'a', name: 'read', arguments: '{}', status: 'completed' },
    { type: 'function_call', callId: 'b', name: 'read', arguments: '{}', providerData: { id: 'fc_b' } },
    {
      ...{ type: 'function_call_result', callId: 'a', name: 'read', status: 'completed' },
      output: [
        { type: 'input_text' as const, text: 'A page.' },
        { type: 'input_image' as const, image: 'https://files.example/page.png' },
      ],
    },
    {
      ...{ type: 'function_call_result', callId: 'b', name: 'read', status: 'completed' },
      output: { type: 'text' as const, text: 'Another.' },
    },
    {
      ...{ type: 'message', id: 'msg_1', role: 'assistant', status: 'completed' },
      content: [
        { type: 'output_text', text: 'Pages.', providerData: { annotations: [], logprobs: [] } },
        { type: 'refusal', refusal: 'Not the rest.' },
      ],
      providerData: {},
    },
  ];
  const { messages } = shown(logged([own as unknown as Json[]], 'openai-agents'), 'openai-responses');
  const wrapped = (messages as { id?: string }[]).map((item): AgentInputItem => ({
    type: 'unknown',
    id: item.id,
    providerData: item,
  }));
  const [ours, sdks] = [await requestOf(wrapped), await requestOf(own)];
  expect(ours.map(comparable)).toEqual(sdks.map(comparable));
  expect(violationsOf(ours)).toEqual([]);
});

/** The input that the SDK sends to the Responses API. */
async function requestOf(items: AgentInputItem[]): Promise<Json[]> {
  const sent: Json[][] = [];
  const openAIClient = new OpenAI({
    apiKey: 'none',
    fetch: async (_, request) => {
      sent.push((JSON.parse(String(request?.body)) as { input: Json[] }).input);
      return Response.json({ id: 'resp_1', object: 'response', output: [answer], usage: null });
    },
  });
  const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient }), tracingDisabled: true });
  await runner.run(new Agent({ name: 'support' }), items);
  return sent.flat();
}

const answer = {
  ...{ type: 'message', id: 'msg_9', role: 'assistant', status: 'completed' },
  content: [{ type: 'output_text', text: 'Yes.', annotations: [] }],
};

/** Values that the SDK writes although they are the defaults of the API. */
const defaults = ['detail', 'logprobs', 'id'];

function comparable(item: Json): Json {
  if (Array.isArray(item)) return item.map(comparable);
  if (item === null || typeof item !== 'object') return item;
  const fields = Object.entries(item).filter(
    ([name, value]) => !defaults.includes(name) && !(name === 'type' && value === 'message'),
  );
  return Object.fromEntries(fields.map(([name, value]) => [name, comparable(value)]));
}

const violationsOf = (messages: Json[]): string[] => openaiResponses.violations({ messages });
