/** The adapters fit what frameworks expect, without a cast. Compiled by `npm run check`, never run. */
import { MemorySaver } from '@langchain/langgraph';
import {
  generateText,
  streamText,
  stepCountIs,
  ToolLoopAgent,
  type LanguageModel,
  type ModelMessage,
  type ToolSet,
} from 'ai';
import {
  generateText as generateText5,
  streamText as streamText5,
  stepCountIs as stepCountIs5,
  type LanguageModel as LanguageModel5,
  type ModelMessage as ModelMessage5,
} from 'ai5';
import { createAgent } from 'langchain';
import { palimpsest } from '../../src/adapters/ai-sdk.js';
import { palimpsestMiddleware } from '../../src/adapters/langchain.js';
import { HttpPalimpsest, type PalimpsestClient } from '../../src/http-client/index.js';

export async function langchain(model: string): Promise<void> {
  const client = await HttpPalimpsest.connect({ url: 'http://127.0.0.1:7280' });
  const middleware = [palimpsestMiddleware({ client, policy: { model } })];
  const agent = createAgent({ model, tools: [], middleware, checkpointer: new MemorySaver() });
  await agent.invoke({ messages: ['Hello'] }, { configurable: { thread_id: 's-1' } });
}

export async function version6(
  client: PalimpsestClient,
  model: LanguageModel,
  messages: ModelMessage[],
  tools: ToolSet,
): Promise<void> {
  const session = 's-1';
  await generateText({ model, messages, ...palimpsest({ client, session }) });
  streamText({ model, messages, stopWhen: stepCountIs(5), ...palimpsest({ client, session, tools }) });
  const agent = new ToolLoopAgent({ model, ...palimpsest({ client, session, tools }) });
  await agent.generate({ messages });
}

export async function version5(
  client: PalimpsestClient,
  model: LanguageModel5,
  messages: ModelMessage5[],
): Promise<void> {
  const session = 's-1';
  await generateText5({ model, messages, ...palimpsest({ client, session }) });
  streamText5({ model, messages, stopWhen: stepCountIs5(5), ...palimpsest({ client, session }) });
}
