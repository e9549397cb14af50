/** The scripted agent (`shipment-agent.ts`) in versions 5 and 6 of the AI SDK. */
import * as version6 from 'ai';
import * as version5 from 'ai5';
import { vi } from 'vitest';
import { palimpsest as steps6 } from '../../src/adapters/ai-sdk.js';
import type { Json } from '../../src/conversation/message.js';
import { recordOf, type Seen, type ShipmentModel, toolNames } from './shipment-agent.js';

/** The adapter as an application gets it that has version 5 as `ai`. */
async function adapterOf5(): Promise<typeof steps6> {
  vi.doMock('ai', () => version5);
  try {
    const file = '../../src/adapters/ai-sdk.js?with-version-5';
    return ((await import(/* @vite-ignore */ file)) as { palimpsest: typeof steps6 }).palimpsest;
  } finally {
    vi.doUnmock('ai');
  }
}

/** test/types compiles both versions with their own types. */
export const versions: [name: string, sdk: typeof version6, steps: typeof steps6][] = [
  ['5', version5 as unknown as typeof version6, await adapterOf5()],
  ['6', version6, steps6],
];

interface Part {
  type: string;
  text?: string;
  toolName?: string;
  input?: unknown;
  output?: { value: unknown };
}
export interface Prompt {
  role: Seen['role'];
  content: string | Part[];
}

function seen({ role, content }: Prompt): Seen[] {
  if (typeof content === 'string') return [{ role, text: content }];
  if (role === 'tool')
    return content.map(({ output }) => ({
      role,
      text: typeof output?.value === 'string' ? output.value : JSON.stringify(output?.value),
    }));
  const calls = content.filter(({ type }) => type === 'tool-call');
  return [
    {
      role,
      text: content.map(({ text = '' }) => text).join(''),
      calls: calls.map(({ toolName = '', input }) => ({ name: toolName, input })),
    },
  ];
}

/** The scripted model behind the interface of one version. */
export function modelFor(name: string, script: ShipmentModel): version6.LanguageModel {
  const isOld = name === '5';
  const answered = ({ prompt, tools }: { prompt: Prompt[]; tools?: unknown }) => {
    const { text, calls, usage } = script.answer(prompt.flatMap(seen), tools);
    const { input, output } = usage;
    const reason = calls.length > 0 ? 'tool-calls' : 'stop';
    return {
      text,
      calls: calls.map(({ id, name: toolName, input: given }) => ({
        ...{ type: 'tool-call', toolCallId: id, toolName, input: JSON.stringify(given) },
        providerMetadata: { scripted: { itemId: `item-${id}` } },
      })),
      end: {
        finishReason: isOld ? reason : { unified: reason, raw: reason },
        usage: isOld
          ? { inputTokens: input, outputTokens: output, totalTokens: input + output }
          : { inputTokens: { total: input }, outputTokens: { total: output } },
      },
      response: { id: `r-${script.requests}`, modelId: 'scripted-2026-01-01', timestamp: new Date() },
    };
  };
  const model = {
    specificationVersion: isOld ? 'v2' : 'v3',
    ...{ provider: 'scripted', modelId: 'scripted', supportedUrls: {} },
    async doGenerate(options: { prompt: Prompt[]; tools?: unknown }) {
      const { text, calls, end, response } = answered(options);
      const content = [...(text === '' ? [] : [{ type: 'text', text }]), ...calls];
      return { content, ...end, response, warnings: [] };
    },
    async doStream(options: { prompt: Prompt[]; tools?: unknown }) {
      const { text, calls, end, response } = answered(options);
      const parts = [
        { type: 'stream-start', warnings: [] },
        { type: 'response-metadata', ...response },
        { type: 'reasoning-start', id: 'r' },
        { type: 'reasoning-delta', id: 'r', delta: 'Let me see.' },
        { type: 'reasoning-end', id: 'r' },
        // Some providers begin a text and then only make calls.
        { type: 'text-start', id: 't' },
        ...text
          .split(/(?<= )/)
          .flatMap((delta) => (delta === '' ? [] : [{ type: 'text-delta', id: 't', delta }])),
        { type: 'text-end', id: 't', providerMetadata: { scripted: { itemId: 'item-text' } } },
        ...calls,
        { type: 'finish', ...end },
      ];
      return {
        stream: new ReadableStream({
          start(controller) {
            for (const part of parts) controller.enqueue(part);
            controller.close();
          },
        }),
      };
    },
  };
  return model as unknown as version6.LanguageModel;
}

/** The first of two parallel calls ends last. */
export function toolsFor({ tool, jsonSchema }: typeof version6): version6.ToolSet {
  const made = toolNames.map((name, index) => [
    name,
    tool({
      description: `Reads the record of ${name}.`,
      inputSchema: jsonSchema<{ shipment: number }>({
        type: 'object',
        properties: { shipment: { type: 'integer' } },
        required: ['shipment'],
        additionalProperties: false,
      }),
      async execute({ shipment }) {
        if (index === 0) await new Promise((resolve) => setTimeout(resolve, 3));
        if (shipment % 25 === 24 && index === 1) throw new Error(`the depot of ${shipment} does not answer`);
        return recordOf(name, shipment);
      },
    }),
  ]);
  return Object.fromEntries(made) as version6.ToolSet;
}

export const plain = (value: unknown): Json => JSON.parse(JSON.stringify(value)) as Json;
