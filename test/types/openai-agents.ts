/** Items of OpenAI's Agents SDK fit without a cast. Compiled by `npm run check`, never run. */
import { Agent, type AgentInputItem, run, tool } from '@openai/agents';
import { callRecoveryTool, recoveryTools, type PalimpsestClient } from '../../src/index.js';

export async function turn(palimpsest: PalimpsestClient, input: AgentInputItem[]): Promise<void> {
  const session = 's-1';
  const tools = recoveryTools.map(({ function: { name, description, parameters } }) =>
    tool({
      name,
      description,
      parameters: { ...parameters, required: parameters.required ?? [], additionalProperties: true },
      strict: false,
      execute: (input) => callRecoveryTool(palimpsest, session, name, input),
    }),
  );
  const agent = new Agent({ name: 'support', tools });
  const { newItems, lastResponseId = 't-1' } = await run(agent, [...(await earlier(palimpsest)), ...input]);
  const said: AgentInputItem[] = newItems.flatMap(({ rawItem }) => (rawItem === undefined ? [] : [rawItem]));
  await palimpsest.appendTurn({
    session,
    format: 'openai-agents',
    turnId: lastResponseId,
    messages: [...input, ...said],
  });
}

/** Items of the Responses API as the SDK passes them on. */
async function earlier(palimpsest: PalimpsestClient): Promise<AgentInputItem[]> {
  const of = { session: 's-1', format: 'openai-responses' } as const;
  const { messages } = await palimpsest.context<{ id?: string }>(of);
  return messages.map((item) => ({ type: 'unknown', id: item.id, providerData: item }));
}
