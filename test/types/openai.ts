/** Messages and items of OpenAI's SDKs fit without a cast. Compiled by `npm run check`, never run. */
import type OpenAI from 'openai';
import type { ResponseInputItem } from 'openai/resources/responses/responses';
import { callRecoveryTool, recoveryTools, type PalimpsestClient } from '../../src/index.js';

export async function chatCompletions(palimpsest: PalimpsestClient, openai: OpenAI): Promise<void> {
  const session = 's-1';
  const { messages } = await palimpsest.context<OpenAI.ChatCompletionMessageParam>({ session });
  const { id, choices, usage } = await openai.chat.completions.create({
    model: 'gpt-5',
    messages,
    tools: recoveryTools,
  });
  const answer = choices[0]!.message;
  const results: OpenAI.ChatCompletionMessageParam[] = [];
  for (const call of answer.tool_calls ?? []) {
    if (call.type !== 'function') continue;
    const { name, arguments: given } = call.function;
    const content = await callRecoveryTool(palimpsest, session, name, given);
    results.push({ role: 'tool', tool_call_id: call.id, content });
  }
  await palimpsest.appendTurn({ session, turnId: id, messages: [answer, ...results], usage });
  await palimpsest.appendTurn({ session, turnId: `${id}-2`, messages });
}

export async function responses(palimpsest: PalimpsestClient, openai: OpenAI): Promise<void> {
  const of = { session: 's-2', format: 'openai-responses' } as const;
  const { messages, system } = await palimpsest.context<ResponseInputItem>(of);
  const tools: OpenAI.Responses.FunctionTool[] = recoveryTools.map(({ function: each }) => ({
    ...each,
    type: 'function',
    strict: false,
  }));
  const answer = await openai.responses.create({
    model: 'gpt-5',
    input: messages,
    instructions: system,
    tools,
  });
  const results: ResponseInputItem[] = [];
  for (const item of answer.output) {
    if (item.type !== 'function_call') continue;
    const output = await callRecoveryTool(palimpsest, of.session, item.name, item.arguments);
    results.push({ type: 'function_call_output', call_id: item.call_id, output });
  }
  const { usage } = answer;
  await palimpsest.appendTurn({ ...of, turnId: answer.id, messages: [...answer.output, ...results], usage });
}
