/** Files: the recognition of their format, and the errors for unknown ones. */
import { describe, expect, it } from 'vitest';
import { classifyLine, closeDocument, openDocument } from '../../../src/formats/documents.js';
import { formatOf } from '../../../src/formats/index.js';
import type { FileLayout } from '../../../src/formats/format.js';
import type { FormatName } from '../../../src/conversation/format-names.js';
import type { Json } from '../../../src/conversation/message.js';
import { fileText } from '../../support/native-files.js';
import { each, joined } from '../../support/texts.js';

const chat: Json[] = [
  { role: 'user', content: 'Hi' },
  { role: 'assistant', content: 'Hello.' },
];

const codexLine: Json = {
  timestamp: 't',
  type: 'response_item',
  payload: { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Hi' }] },
};

const responsesItems: Json[] = [
  { role: 'user', content: 'Hi' },
  { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'Hello.' }] },
];

const langchainItems: Json[] = [
  { type: 'human', content: 'Hi' },
  { type: 'ai', content: 'Hello.' },
];

const modelMessages: Json[] = [
  { role: 'user', content: 'Hi' },
  { role: 'assistant', content: [{ type: 'tool-call', toolCallId: 'a', toolName: 'b', input: {} }] },
];

const uiMessages: Json[] = [{ id: '1', role: 'user', parts: [{ type: 'text', text: 'Hi' }] }];

const anthropicMessages: Json[] = [
  { role: 'user', content: 'Hi' },
  { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'b', input: {} }] },
];

const contents: Json[] = [
  { role: 'user', parts: [{ text: 'Hi' }] },
  { role: 'model', parts: [{ text: 'Hello.' }] },
];

const documents: [string, Json, FileLayout, FormatName, string?][] = [
  ['chat messages', chat, 'document', 'openai-chat'],
  ['chat messages, one a line', chat, 'lines', 'openai-chat'],
  [
    'a record of chat messages',
    { id: 's1', source: 'x', messages: chat, meta: { n: 2 } },
    'document',
    'openai-chat',
    's1',
  ],
  [
    'a request of the Responses API',
    { model: 'm', instructions: 'Be brief.', input: responsesItems },
    'document',
    'openai-responses',
  ],
  ['a request with a text', { model: 'm', input: 'Hi' }, 'document', 'openai-responses'],
  ['items', responsesItems, 'document', 'openai-responses'],
  [
    'a response',
    { id: 'resp_1', object: 'response', output: responsesItems.slice(1), usage: null },
    'document',
    'openai-responses',
    'resp_1',
  ],
  ['LangChain messages', langchainItems, 'document', 'langchain'],
  [
    'a state of LangGraph',
    { values: { messages: langchainItems, todos: [] }, next: [] },
    'document',
    'langchain',
  ],
  ['ModelMessages', modelMessages, 'document', 'ai-sdk'],
  [
    'ModelMessages with a system text',
    { system: 'Be brief.', messages: modelMessages },
    'document',
    'ai-sdk',
  ],
  ['a chat of UIMessages', { id: 'chat-1', messages: uiMessages }, 'document', 'ai-sdk', 'chat-1'],
  ['Anthropic messages', { system: 'Be brief.', messages: chat }, 'document', 'anthropic'],
  ['Anthropic blocks', anthropicMessages, 'document', 'anthropic'],
  [
    'Gemini contents',
    { contents, systemInstruction: { parts: [{ text: 'Be brief.' }] } },
    'document',
    'gemini',
  ],
  ['Anthropic messages, one a line', anthropicMessages, 'lines', 'anthropic'],
  ['Gemini contents, one a line', contents, 'lines', 'gemini'],
  [
    'a rollout of Codex',
    [{ timestamp: 't', type: 'session_meta', payload: { id: 'abc' } }, codexLine],
    'lines',
    'codex',
    'abc',
  ],
  [
    'an older rollout',
    [{ id: 'abc', timestamp: 't', instructions: null }, { record_type: 'state' }, ...responsesItems.slice(1)],
    'lines',
    'codex',
    'abc',
  ],
  [
    'a run state of the Agents SDK',
    { $schemaVersion: '1.0', originalInput: 'Hi', generatedItems: [], currentTurn: 1 },
    'document',
    'openai-agents',
  ],
  [
    'a trajectory of SWE-agent',
    { environment: 'main', history: [{ role: 'user', content: 'Hi', agent: 'main' }], info: {} },
    'document',
    'swe-agent',
    undefined,
  ],
  [
    'events of OpenHands',
    [{ id: 0, source: 'user', action: 'message', args: { content: 'Hi' } }],
    'document',
    'openhands',
  ],
];

describe('a file', () => {
  it.each(documents)(
    'is recognised as %s, and exported unchanged',
    async (_title, value, layout, format, id) => {
      const opened = openDocument(value, layout);
      expect({ format: opened.format, id: opened.id }).toEqual({ format, id });
      expect(await joined(closeDocument(each(opened.items), format))).toBe(fileText(value, layout));
      expect(openDocument(value, layout, format)).toEqual(opened);
    },
  );

  it('is a single answer of Anthropic, and becomes a list when more messages follow', async () => {
    const answer = {
      id: 'msg_1',
      type: 'message',
      role: 'assistant',
      content: [{ type: 'text', text: 'Hi' }],
    };
    const { items, format } = openDocument(answer, 'document');
    expect(await joined(closeDocument(each(items), format))).toBe(fileText(answer, 'document'));
    const more = [...items, { role: 'user', content: 'Thanks' }];
    expect(await joined(closeDocument(each(more), format))).toBe(fileText(more, 'document'));
  });

  it('has later messages at the end of its last list', async () => {
    const later = { role: 'user', content: 'More' };
    const written = async (value: Json, layout: FileLayout, item: Json = later): Promise<Json> => {
      const { items, format } = openDocument(value, layout);
      return JSON.parse(await joined(closeDocument(each([...items, item]), format)));
    };
    expect(await written({ id: 's1', messages: chat, n: 2 }, 'document')).toEqual({
      ...{ id: 's1', messages: [...chat, later], n: 2 },
    });
    expect(await written({ model: 'm', input: 'Hi' }, 'document')).toEqual({
      ...{ model: 'm', input: [{ role: 'user', content: 'Hi' }, later] },
    });
    const [asked, answered] = [responsesItems.slice(0, 1), responsesItems.slice(1)];
    const reversed = {
      response: { id: 'r', object: 'response', output: answered },
      responses_create_params: { input: asked },
    };
    expect(JSON.stringify(await written(reversed, 'document'))).toBe(
      JSON.stringify({ ...reversed, response: { ...reversed.response, output: [...answered, later] } }),
    );
  });

  it('that has an unknown envelope is exported as the list of its items', async () => {
    const lists = [{ path: ['messages'], count: 1, text: false }];
    for (const [document, places] of [
      [{}, lists],
      [{ messages: null }, [...lists, ...lists]],
      [{ messages: [] }, lists],
      ['x', lists],
      [{ messages: null }, [{ path: 'messages' }]],
    ] as Json[][]) {
      const items = [{ 'palimpsest.document': { document: document!, lists: places! } }, ...chat];
      expect(JSON.parse(await joined(closeDocument(each(items), 'openai-chat')))).toEqual(items);
    }
  });

  it('stores its other data with its first message', () => {
    const { items } = openDocument({ id: 's1', messages: chat, meta: { n: 2 } }, 'document');
    const units = formatOf('openai-chat').normalize(items, 'messages');
    expect(units.map((unit) => unit.items.length)).toEqual([2, 1]);
    expect(units.flatMap(({ messages }) => messages)).toEqual(chat);
  });

  it.each<[Json, FileLayout, FormatName | undefined, string]>([
    [
      { title: 'x', body: [] },
      'document',
      undefined,
      'The file is not in a known format: it is an object with the fields "title", "body".',
    ],
    [[], 'document', undefined, 'The file is not in a known format: it is a list of 0, empty.'],
    ['x', 'document', undefined, 'The file is not in a known format: it is a string.'],
    [
      [{ a: 1 }],
      'lines',
      undefined,
      'The file is not in a known format: it is 1 lines, the first of them an object with the fields "a".',
    ],
    [
      { messages: chat },
      'document',
      'codex',
      'The file is not a file of Codex rollout: it is an object with the fields "messages".',
    ],
    [
      [{ messages: chat }, { messages: chat }],
      'lines',
      undefined,
      'Each line is a session in the format openai-chat; together they do not form one session.',
    ],
    [
      [{ role: 'user', content: '' }],
      'document',
      undefined,
      'The file was recognised as OpenAI chat completions, but contains no message.',
    ],
    [
      { original_input: [], generated_items: [] },
      'document',
      undefined,
      'The run state has no messages: original_input and generated_items are empty.',
    ],
  ])('is refused with its fields: %j', (value, layout, format, message) => {
    expect(() => openDocument(value, layout, format)).toThrow(
      expect.objectContaining({ type: 'Input.Invalid', message }),
    );
  });

  it('is refused with the path of the invalid field', () => {
    const broken = [
      codexLine,
      { timestamp: 't', type: 'response_item', payload: { type: 'function_call', name: 7 } },
    ];
    expect(() => openDocument(broken, 'lines')).toThrow(
      expect.objectContaining({ type: 'Input.Invalid', path: 'lines[1].payload.name' }),
    );
  });
});

describe('a line', () => {
  it.each<[Json, string | null]>([
    [codexLine, 'codex item'],
    [{ messages: chat }, 'openai-chat session'],
    [chat, 'openai-chat session'],
    [chat[0]!, 'openai-chat item'],
    [responsesItems[1]!, 'openai-responses item'],
    [{ input: responsesItems, model: 'm' }, 'openai-responses session'],
    [langchainItems[0]!, 'langchain item'],
    [anthropicMessages[1]!, 'anthropic item'],
    [contents[0]!, 'gemini item'],
    [uiMessages[0]!, 'ai-sdk item'],
    [{ original_input: [], generated_items: [] }, 'openai-agents session'],
    [{ a: 1 }, null],
    [7, null],
  ])('%j is %s', (value, expected) => {
    const kind = classifyLine(value);
    expect(kind && `${kind.format} ${kind.kind}`).toBe(expected);
  });
});
