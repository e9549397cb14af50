/** Tool definitions of the SDKs fit `overhead` of a policy without a cast. Compiled by `npm run check`, never run. */
import type Anthropic from '@anthropic-ai/sdk';
import type OpenAI from 'openai';
import type { PalimpsestClient, PolicyInput } from '../../src/index.js';

type Tools =
  | OpenAI.ChatCompletionTool[]
  | OpenAI.ChatCompletionFunctionTool[]
  | OpenAI.Responses.FunctionTool[]
  | OpenAI.Responses.Tool[]
  | Anthropic.Tool[];

export async function overheads(palimpsest: PalimpsestClient, system: string, tools: Tools): Promise<void> {
  const policy: PolicyInput = { model: 'gpt-5', overhead: { system, tools } };
  await palimpsest.sync({ session: 's-1', messages: [], policy });
  await palimpsest.configure({ session: 's-1', policy });
  // @ts-expect-error A tool is no text.
  await palimpsest.configure({ session: 's-1', policy: { overhead: { tools: ['search'] } } });
}
