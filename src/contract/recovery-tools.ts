/**
 * Tools with which the agent reads its own archive. Pass `recoveryTools` to the model together with your own tools, and answer
 * its calls with `callRecoveryTool`. Summaries and excerpts refer to these names.
 */
import { z } from 'zod';
import type { MessageOrigin } from './archive.js';
import { textOf } from '../conversation/validate.js';
import { type FailureType, isFailure } from '../errors.js';
import type { PalimpsestClient } from './client.js';

const seq = z.number().int().min(1);

const getToolResponse = z.strictObject({
  call_id: z.string().min(1).optional().describe('Id of the tool call, as this conversation shows it.'),
  message: seq.optional().describe('Number of the message, where you know that instead.'),
  offset: z
    .number()
    .int()
    .min(0)
    .optional()
    .describe('Characters to leave out; next_offset of the page before.'),
  limit: z.number().int().min(1).max(50_000).optional().describe('Characters at most; 8,000 where left out.'),
});

const searchHistory = z.strictObject({
  query: z
    .string()
    .min(1)
    .describe(
      'Words to look for, several for the same thing (dog puppy Max); messages with more and rarer ones of them come first. "Quoted words" must occur exactly so. Identifiers are found by their parts, too.',
    ),
  exact: z.boolean().optional().describe('Look for exactly these characters instead, whatever their case.'),
  role: z.enum(['system', 'developer', 'user', 'assistant', 'tool', 'function']).optional(),
  speaker: z.string().min(1).optional().describe('Only messages of this speaker, as hits name it.'),
  tool: z.string().min(1).optional().describe('Only results of this tool, and calls of it.'),
  from: z.string().min(1).optional().describe('Only from this day on: 2023-05-07, 2023-05, or a time.'),
  through: z.string().min(1).optional().describe('Only up to the end of this day, month, or time.'),
  from_message: seq.optional().describe('Only from this message on.'),
  through_message: seq.optional().describe('Only up to this message.'),
  after: z
    .number()
    .int()
    .min(0)
    .max(10)
    .optional()
    .describe('Messages behind each hit to show with it, such as the answer to a question: 2 or 3.'),
  limit: z.number().int().min(1).max(50).optional().describe('Hits at most; 10 where left out.'),
  offset: z.number().int().min(0).optional().describe('Hits to leave out; next_offset of the page before.'),
});

const expandHistory = z.strictObject({
  part: seq.optional().describe('Archive part; where left out, any messages.'),
  from_message: seq.optional().describe('Number of the first message.'),
  limit: z.number().int().min(1).max(200).optional().describe('Messages at most; 20 where left out.'),
});

const definitions = {
  get_tool_response: {
    description:
      'Reads the original of a tool result (or of any message by its number), word for word and page by page. Use it where an excerpt or a note says that something was left out.',
    parameters: getToolResponse,
  },
  search_history: {
    description:
      'Searches every message of this session, those included that a summary stands for. Answers, for each hit, message number, date, speaker and the line around the match, which stands between « and ».',
    parameters: searchHistory,
  },
  expand_history: {
    description:
      'Reads earlier messages in order, originals of what a summary stands for. Long ones are shown in part: read them with get_tool_response.',
    parameters: expandHistory,
  },
};

export type RecoveryToolName = keyof typeof definitions;

/** A JSON Schema of the arguments, in the form that every SDK accepts. */
export type ToolParameters = {
  type: 'object';
  properties: Record<string, { type: 'string' | 'integer' | 'boolean'; description?: string }>;
  additionalProperties: false;
  required?: string[];
};

/** A tool in the form of an element of `tools` in a chat-completions request. */
export type ToolDefinition = {
  type: 'function';
  function: { name: RecoveryToolName; description: string; parameters: ToolParameters };
};

function definitionOf(name: RecoveryToolName): ToolDefinition {
  const { description, parameters } = definitions[name];
  const { $schema: _dialect, ...schema } = z.toJSONSchema(parameters);
  return { type: 'function', function: { name, description, parameters: schema as ToolParameters } };
}

export const recoveryTools: ToolDefinition[] = [
  definitionOf('get_tool_response'),
  definitionOf('search_history'),
  definitionOf('expand_history'),
];

/** The methods of the client that the tools call. */
export type RecoverySource = Pick<PalimpsestClient, 'toolResponse' | 'search' | 'expand'>;

/**
 * Answers one call of the agent. Resolves to the content of its tool message, a JSON object. For a mistake of the model (an
 * unknown tool or id, invalid JSON, too long arguments) the object is `{"error", "hint"}`; other failures, such as
 * `Store.Unavailable`, are thrown. `given` has the arguments as the SDK passes them: JSON text, or its value.
 *
 * @example
 * const content = await callRecoveryTool(palimpsest, 's-1', call.function.name, call.function.arguments);
 * messages.push({ role: 'tool', tool_call_id: call.id, content });
 */
export async function callRecoveryTool(
  palimpsest: RecoverySource,
  session: string,
  name: string,
  given: unknown,
): Promise<string> {
  try {
    return JSON.stringify(await answer(palimpsest, session, name, given));
  } catch (error) {
    const mistake = mistakeIn(error);
    if (mistake === null) throw error;
    return JSON.stringify(mistake);
  }
}

const callAgain = 'Correct the arguments and call again.';

/** Next steps for a model, which can only read, in place of those for a program that appends. */
const hintsForReaders: Partial<Record<FailureType, string>> = {
  'Store.SessionNotFound':
    'Nothing is stored under this id yet. Use the id of a stored session, if you know one.',
  'Input.TooLarge': 'Call again with shorter arguments.',
};

/** The answer to a mistake of the model; null for another failure. */
export function mistakeIn(error: unknown): { error: string; hint: string } | null {
  if (error instanceof Mistake) return { error: error.message, hint: error.hint };
  if (!isFailure(error)) return null;
  const hint = hintsForReaders[error.type];
  if (hint === undefined && error.type !== 'Input.Invalid') return null;
  return { error: inWordsOfTools(error.message), hint: hint ?? inWordsOfTools(error.hint ?? callAgain) };
}

/** Names of the client's fields, as the arguments of the tools have them. */
const argumentNames: Readonly<Record<string, string>> = {
  fromSeq: 'from_message',
  throughSeq: 'through_message',
  callId: 'call_id',
  'its seq': 'its number',
};

const inWordsOfTools = (text: string): string =>
  text.replaceAll(/\b(?:fromSeq|throughSeq|callId|its seq)\b/g, (name) => argumentNames[name] ?? name);

/** A mistake of the model, found before any request to the store. */
class Mistake extends Error {
  constructor(
    message: string,
    readonly hint: string,
  ) {
    super(message);
  }
}

async function answer(
  palimpsest: RecoverySource,
  session: string,
  name: string,
  given: unknown,
): Promise<Record<string, unknown>> {
  switch (name) {
    case 'get_tool_response':
      return response(palimpsest, session, parsed(getToolResponse, given));
    case 'search_history':
      return hits(palimpsest, session, parsed(searchHistory, given));
    case 'expand_history':
      return expansion(palimpsest, session, parsed(expandHistory, given));
    default:
      throw new Mistake(
        `There is no tool ${JSON.stringify(name)} here.`,
        `There are ${Object.keys(definitions).join(', ')}.`,
      );
  }
}

/** Models send `""` for no arguments, and null for an omitted parameter. */
function parsed<T>(schema: z.ZodType<T>, given: unknown): T {
  let value: unknown = given ?? {};
  try {
    if (typeof given === 'string') value = given.trim() === '' ? {} : (JSON.parse(given) as unknown);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Mistake(`The arguments are no JSON: ${why}`, 'Send one JSON object.');
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    value = Object.fromEntries(Object.entries(value).filter(([, given]) => given !== null));
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw new Mistake(
    result.error.issues.map(({ path, message }) => `${path.join('.') || 'arguments'}: ${message}`).join('; '),
    callAgain,
  );
}

async function response(
  palimpsest: RecoverySource,
  session: string,
  { call_id, message, offset = 0, limit = 8_000 }: z.infer<typeof getToolResponse>,
): Promise<Record<string, unknown>> {
  if ((call_id === undefined) === (message === undefined))
    throw new Mistake('Name either call_id or message.', 'call_id is the id of the call, message a number.');
  const reference = message === undefined ? { callId: call_id ?? '' } : { seq: message };
  const found = await palimpsest.toolResponse({ session, ...reference, offset, limit });
  const others = found.occurrences.filter((occurrence) => occurrence.seq !== found.seq);
  return {
    message: found.seq,
    role: found.role,
    tool: found.tool,
    archive_part: found.part,
    format: found.format,
    content: found.content,
    offset: found.offset,
    total_characters: found.totalCharacters,
    next_offset: found.nextOffset,
    ...(others.length === 0
      ? {}
      : { other_results_with_this_id: others.slice(0, 20).map((other) => other.seq) }),
  };
}

async function hits(
  palimpsest: RecoverySource,
  session: string,
  request: z.infer<typeof searchHistory>,
): Promise<Record<string, unknown>> {
  const { exact, from_message: fromSeq, through_message: throughSeq, ...rest } = request;
  const found = await palimpsest.search({
    session,
    forAgent: true,
    ...rest,
    ...(exact ? { mode: 'substring' as const } : {}),
    ...(fromSeq === undefined ? {} : { fromSeq }),
    ...(throughSeq === undefined ? {} : { throughSeq }),
  });
  return {
    hits: found.hits.map((hit) => ({
      message: hit.seq,
      ...by(hit),
      tool: hit.tool,
      offset: hit.offset,
      snippet: hit.snippet,
      ...(hit.following.length === 0
        ? {}
        : { following: hit.following.map((one) => ({ message: one.seq, ...by(one), text: one.text })) }),
    })),
    next_offset: found.nextOffset,
    ...(found.meaning?.failure ? { note: `Found by words alone: ${found.meaning.failure}` } : {}),
    ...(found.hits.length === 0
      ? { hint: 'Try other words for the same thing, fewer filters, or exact: true for a part of a word.' }
      : {}),
  };
}

function by({ role, speaker, at, storedAt }: MessageOrigin): Record<string, unknown> {
  return { role, ...(speaker === null ? {} : { speaker }), date: at ?? storedAt };
}

/** Largest number of characters that a list shows of one message. */
const longestShown = 2_000;

async function expansion(
  palimpsest: RecoverySource,
  session: string,
  { part, from_message: fromSeq, limit = 20 }: z.infer<typeof expandHistory>,
): Promise<Record<string, unknown>> {
  const page = {
    limit,
    ...(part === undefined ? {} : { part }),
    ...(fromSeq === undefined ? {} : { fromSeq }),
  };
  const found = await palimpsest.expand({ session, ...page, maxCharacters: 40_000 });
  return {
    messages: found.messages.map(({ seq: number, message, at }) => {
      const text = textOf(message);
      const calls = (message.tool_calls ?? []).map((call) => ({
        id: call.id,
        name: call.function?.name,
        arguments: shown(call.function?.arguments ?? '').text,
      }));
      return {
        message: number,
        role: message.role,
        ...(at === undefined ? {} : { date: at }),
        ...shown(text),
        ...(message.tool_call_id ? { answers: message.tool_call_id } : {}),
        ...(calls.length === 0 ? {} : { calls }),
      };
    }),
    next_message: found.nextSeq,
  };
}

function shown(text: string): { text: string; total_characters?: number } {
  if (text.length <= longestShown) return { text };
  return {
    text: `${text.slice(0, longestShown).replace(/[\uD800-\uDBFF]$/, '')}…`,
    total_characters: text.length,
  };
}
