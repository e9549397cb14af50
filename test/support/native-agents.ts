/** Random runs of agents in the form in which their providers record them, all valid. */
import fc from 'fast-check';
import type { Json } from '../../src/conversation/message.js';
import { texts } from './histories.js';

type Item = Record<string, Json>;

interface Round {
  ask: string;
  thought: string | null;
  outputs: string[];
  reversed: boolean;
  picture: boolean;
  remark: string | null;
  answer: string;
}

const words = texts.map((text) => text.trim()).filter((text) => text !== '');
const rounds = fc.array(
  fc.record<Round>({
    ask: words,
    thought: fc.option(words),
    outputs: fc.array(words, { minLength: 1, maxLength: 3 }),
    reversed: fc.boolean(),
    picture: fc.boolean(),
    remark: fc.option(words),
    answer: words,
  }),
  { minLength: 1, maxLength: 5 },
);

const png = 'iVBORw0KGgo=';

export const anthropicAgents: fc.Arbitrary<Item[]> = rounds.map((all) =>
  all.flatMap(({ ask, thought, outputs, reversed, picture, remark, answer }, round): Item[] => {
    const ids = outputs.map((_, index) => `toolu_${round}_${index}`);
    const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: png } };
    const results = outputs.map((text, index) => ({
      type: 'tool_result',
      tool_use_id: ids[index]!,
      content: picture ? [{ type: 'text', text }, image] : text,
    }));
    if (reversed) results.reverse();
    return [
      { role: 'user', content: ask },
      {
        role: 'assistant',
        content: [
          ...(thought === null ? [] : [{ type: 'thinking', thinking: thought, signature: 'c2ln' }]),
          ...ids.map((id) => ({ type: 'tool_use', id, name: 'run', input: { round } })),
        ],
      },
      { role: 'user', content: [...results, ...(remark === null ? [] : [{ type: 'text', text: remark }])] },
      { role: 'assistant', content: [{ type: 'text', text: answer }] },
    ];
  }),
);

export const geminiAgents: fc.Arbitrary<Item[]> = rounds.map((all) =>
  all.flatMap(({ ask, thought, outputs, picture, remark, answer }, round): Item[] => [
    { role: 'user', parts: [{ text: ask }] },
    {
      role: 'model',
      parts: [
        ...(thought === null ? [] : [{ text: thought, thought: true }]),
        ...outputs.map((_, index) => ({
          functionCall: { name: 'run', args: { round } },
          ...(index === 0 ? { thoughtSignature: 'c2ln' } : {}),
        })),
      ],
    },
    {
      role: 'user',
      parts: [
        ...outputs.map((output) => ({ functionResponse: { name: 'run', response: { output } } })),
        ...(picture ? [{ inlineData: { mimeType: 'image/png', data: png } }] : []),
        ...(remark === null ? [] : [{ text: remark }]),
      ],
    },
    { role: 'model', parts: [{ text: answer }] },
  ]),
);
