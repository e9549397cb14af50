/** Messages of Anthropic's SDK fit without a cast. Compiled by `npm run check`, never run. */
import type Anthropic from '@anthropic-ai/sdk';
import { callRecoveryTool, recoveryTools, type PalimpsestClient } from '../../src/index.js';

export async function messages(palimpsest: PalimpsestClient, anthropic: Anthropic): Promise<void> {
  const of = { session: 's-1', format: 'anthropic' } as const;
  const { system, messages } = await palimpsest.context<Anthropic.MessageParam>(of);
  const tools: Anthropic.Tool[] = recoveryTools.map(({ function: { name, description, parameters } }) => ({
    name,
    description,
    input_schema: parameters,
  }));
  const asked = { model: 'claude-sonnet-5', max_tokens: 1_000, system, messages, tools };
  const { id, role, content, usage } = await anthropic.messages.create(asked);
  const results: Anthropic.ToolResultBlockParam[] = [];
  for (const block of content) {
    if (block.type !== 'tool_use') continue;
    const found = await callRecoveryTool(palimpsest, of.session, block.name, block.input);
    results.push({ type: 'tool_result', tool_use_id: block.id, content: found });
  }
  const answered: Anthropic.MessageParam[] = [
    { role, content },
    { role: 'user', content: results },
  ];
  await palimpsest.appendTurn({ ...of, turnId: id, messages: answered, usage });
}
