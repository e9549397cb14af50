/** Messages of the Vercel AI SDK fit without a cast. Compiled by `npm run check`, never run. */
import { generateText, jsonSchema, type LanguageModel, type ModelMessage, tool, type UIMessage } from 'ai';
import { callRecoveryTool, recoveryTools, type PalimpsestClient } from '../../src/index.js';

export async function modelMessages(palimpsest: PalimpsestClient, model: LanguageModel): Promise<void> {
  const of = { session: 's-1', format: 'ai-sdk' } as const;
  const { messages } = await palimpsest.context<ModelMessage>(of);
  const tools = Object.fromEntries(
    recoveryTools.map(({ function: { name, description, parameters } }) => [
      name,
      tool({
        description,
        inputSchema: jsonSchema(parameters),
        execute: (input) => callRecoveryTool(palimpsest, of.session, name, input),
      }),
    ]),
  );
  const { response, steps } = await generateText({ model, messages, tools });
  // Of the request that made the first message.
  const usage = steps[0]?.usage;
  await palimpsest.appendTurn({ ...of, turnId: response.id, messages: response.messages, usage });
}

export async function uiMessages(palimpsest: PalimpsestClient, messages: UIMessage[]): Promise<void> {
  await palimpsest.appendTurn({ session: 's-2', format: 'ai-sdk', turnId: 't-1', messages });
}
