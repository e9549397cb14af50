/** Archive parts, search, and reading originals back. */
import { z } from 'zod';
import { roles } from '../conversation/message.js';
import { component, date, moment } from './schema.js';
import { chatExample, loggedMessage } from './turns.js';

const largestSeq = 2 ** 31 - 1;
const seq = z.int().min(1).max(largestSeq);

export type ArchivePart = z.infer<typeof archivePart>;
const archivePart = component(
  'ArchivePart',
  z.object({
    part: z.int(),
    generation: z.int(),
    fromSeq: z.int(),
    throughSeq: z.int(),
    messages: z.int(),
    tokens: z.number(),
    bytes: z.number().describe('Bytes of the bodies in UTF-8.'),
    sha256: z.string().describe("Hash of the messages' 32-byte sha256 hashes, in order."),
    createdAt: date,
  }),
  {
    description: 'The range of the log that one compaction evicted.',
    example: {
      ...{ part: 1, generation: 1, fromSeq: 1, throughSeq: 24, messages: 24, tokens: 2_440, bytes: 11_208 },
      sha256: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
      createdAt: '2026-03-02T09:00:00.000Z',
    },
  },
);

export const archivePartList = component('ArchivePartList', z.object({ parts: z.array(archivePart) }), {
  description: 'The archive parts, oldest first.',
  example: { parts: [] },
});

export const partNumber = seq.describe('Number of the part.');

export type ExpandRequest = z.infer<typeof expandRequest>;
export const expandRequest = z.strictObject({
  part: seq.optional().describe('Archive part. Default: the whole log.'),
  fromSeq: seq.optional().describe('First message. Default: the first one of the part, or of the log.'),
  limit: z.int().min(1).max(1_000).optional().describe('Maximum number of messages. Default 50.'),
  maxCharacters: z
    .int()
    .min(1)
    .max(50_000_000)
    .optional()
    .describe(
      "Maximum length of the messages' JSON, in UTF-16 code units. A first message that is longer is returned alone. Default 100,000.",
    ),
});

export type Expansion = z.infer<typeof expansion>;
export const expansion = component(
  'Expansion',
  z.object({
    part: z.int().nullable(),
    messages: z.array(loggedMessage).describe('Originals in order, each checked against its hash.'),
    nextSeq: z
      .int()
      .nullable()
      .describe('The start of the next page; null at the end of the part, or of the log.'),
  }),
  {
    description: 'A page of originals, each checked against its hash.',
    example: { part: null, messages: [{ seq: 1, message: chatExample, tokens: 12 }], nextSeq: null },
  },
);

/**
 * Fields that clients of earlier versions send: with one of them, `replay` answers a page. The OpenAPI document leaves them
 * out, because `expand` is its operation for pages.
 */
export const replayRequest = z.strictObject({
  after: z
    .int()
    .min(0)
    .max(largestSeq - 1)
    .optional()
    .meta({ deprecated: true }),
  limit: z.int().min(1).max(1_000).optional().meta({ deprecated: true }),
});

export const messageList = component('MessageList', z.object({ messages: z.array(loggedMessage) }), {
  description: 'The originals of one archive part.',
  example: { messages: [{ seq: 1, message: chatExample, tokens: 12 }] },
});

export type SearchMode = z.infer<typeof searchMode>;
const searchMode = z.enum(['words', 'substring']);

export type SearchRequest = z.infer<typeof searchRequest>;
export const searchRequest = component(
  'SearchRequest',
  z.strictObject({
    query: z.string().describe('At most 10,000 characters; a substring, or a quoted phrase, at most 2,000.'),
    mode: searchMode
      .optional()
      .describe(
        '`words` finds messages with any word of the query. Those that hold an identifier verbatim come first, then those with ' +
          'rarer words and with words next to each other as in the query; a word in the message before or after counts a ' +
          'little. A phrase in `"…"` must occur exactly, except for case. `substring` finds the whole query, including quotation ' +
          'marks, exactly except for case. Without `mode` the search is by words and, if the deployment has embeddings and the ' +
          'query has no phrase in `"…"`, also by meaning; both rankings are then merged.',
      ),
    role: z.enum(roles).optional(),
    speaker: z
      .string()
      .optional()
      .describe('The speaker: `name` of a message, in upper or lower case. For roles with several speakers.'),
    tool: z.string().optional().describe('Name of a tool: finds its results and the messages that call it.'),
    fromSeq: seq
      .optional()
      .describe(
        'First message of the range. If the range is one message, every match in a long text is a separate hit.',
      ),
    throughSeq: seq.optional().describe('Last message of the range.'),
    from: z
      .string()
      .optional()
      .describe(
        'Only messages said at this time or later (or stored, if it is unknown when they were said): a day (`2023-05-07`), ' +
          'a month or a year in UTC, or an ISO 8601 time.',
      ),
    through: z
      .string()
      .optional()
      .describe('The end of the period, in the same form. It includes all of that day, month or year.'),
    forAgent: z
      .boolean()
      .optional()
      .describe(
        "For a search by the session's own agent: after all other hits, with rank 0, come the calls and results of the recovery " +
          'tools, which quote originals, and the newest user message, which the context shows. The order is the usual one if ' +
          '`tool` names a recovery tool, and if the range is one message. Default false.',
      ),
    after: z
      .int()
      .min(0)
      .max(10)
      .optional()
      .describe('Number of messages after each hit to return with it. Default 0.'),
    limit: z.int().min(1).max(50).optional().describe('Maximum number of hits. Default 10.'),
    offset: z
      .int()
      .min(0)
      .max(largestSeq)
      .optional()
      .describe('Hits to skip: `nextOffset` of the page before. Default 0.'),
  }),
  { description: 'A search in the archive and the tail.', example: { query: 'order 4711', limit: 5 } },
);

const origin = {
  seq: z.int(),
  role: z.enum(roles),
  speaker: z
    .string()
    .nullable()
    .describe("The message's `name`: the speaker, for roles with several speakers."),
  at: moment.nullable().describe('When the message was said; null if this is unknown.'),
  storedAt: moment.describe('When the message was stored.'),
};

export type FollowingMessage = z.infer<typeof followingMessage>;
export type MessageOrigin = Omit<FollowingMessage, 'text'>;
const followingMessage = component(
  'FollowingMessage',
  z.object({
    ...origin,
    text: z.string().describe("The beginning of the message's text in one line, at most 500 characters."),
  }),
  {
    description: 'A message after a hit.',
    example: {
      ...{ seq: 2, role: 'assistant', speaker: null, at: null, storedAt: '2026-03-02T09:00:04.000Z' },
      text: 'It left the depot on Monday.',
    },
  },
);

export type SearchHit = z.infer<typeof searchHit>;
const searchHit = component(
  'SearchHit',
  z.object({
    ...origin,
    tool: z
      .string()
      .nullable()
      .describe(
        'The tool that produced a result, or the tools that an assistant message calls, separated by commas; null for none.',
      ),
    offset: z
      .int()
      .describe(
        "The start of the match in the message's text, in UTF-16 code units. If the content is a string, this value " +
          'can also be given to `toolResponse` as `offset`. The text consists of content, then calls, then reasoning.',
      ),
    snippet: z
      .string()
      .describe(
        'One line around the match, which is marked with `«` and `»`. A hit by meaning alone has no mark.',
      ),
    rank: z
      .number()
      .describe(
        'Higher is better, within one answer. Substring hits all have rank 1, newest first; see also `forAgent`.',
      ),
    following: z
      .array(followingMessage)
      .describe('The messages after the hit, as many as `after` requested.'),
  }),
  {
    description: 'A message that matches the query.',
    example: {
      seq: 1,
      role: 'user',
      speaker: 'Ada',
      at: '2026-03-02T08:59:58.000Z',
      storedAt: '2026-03-02T09:00:00.000Z',
      tool: null,
      offset: 12,
      snippet: 'Where is my «order 4711»?',
      rank: 4.2,
      following: [],
    },
  },
);

export type SearchByMeaning = z.infer<typeof searchByMeaning>;
const searchByMeaning = component(
  'SearchByMeaning',
  z.object({
    failure: z
      .string()
      .nullable()
      .describe(
        'The failure of the embeddings endpoint; the search then used words for some or all messages. Null for none.',
      ),
    vectors: z.int().describe('Number of vectors compared.'),
    fromSeq: z.int().nullable().describe('First message whose vectors were compared; null for none.'),
    throughSeq: z.int().nullable().describe('Last message whose vectors were compared; null for none.'),
  }),
  {
    description: 'The extent of a search by meaning.',
    example: { failure: null, vectors: 240, fromSeq: 1, throughSeq: 240 },
  },
);

export type SearchResult = z.infer<typeof searchResult>;
export const searchResult = component(
  'SearchResult',
  z.object({
    mode: searchMode.describe(
      'The mode used. A query without letters and digits is searched as a substring.',
    ),
    meaning: searchByMeaning
      .nullable()
      .describe(
        'Null if the search was not by meaning: no embeddings are configured, the request gave a `mode`, the query has a phrase in `"…"` or neither letters nor digits, or the range is one message.',
      ),
    hits: z.array(searchHit),
    nextOffset: z.int().nullable().describe('The start of the next page; null if there is none.'),
  }),
  { description: 'Hits, best first.', example: { mode: 'words', meaning: null, hits: [], nextOffset: null } },
);

/** A tool result, named by its call id in the log or in the context, or any message, named by its seq. */
export type ResponseReference = { callId: string; seq?: undefined } | { seq: number; callId?: undefined };
export type Page = Omit<z.infer<typeof responseRequest>, 'callId' | 'seq'>;
/** Refuses a request that names no message, or two. */
export function namesOne(
  { callId, seq: message }: { callId?: string; seq?: number },
  context: z.RefinementCtx,
): void {
  if ((callId === undefined) !== (message === undefined)) return;
  context.addIssue({
    code: 'custom',
    message: callId === undefined ? 'or seq is missing' : 'or seq must be given, not both',
    path: ['callId'],
    params: { hint: 'callId names a result; seq names any message of the log.' },
  });
}

export const responseRequest = z
  .strictObject({
    callId: z
      .string()
      .min(1)
      .optional()
      .describe('Id of the call, as in the log or a context. Alternative to `seq`.'),
    seq: seq.optional().describe('Seq of any message. Alternative to `callId`.'),
    offset: z.int().min(0).max(largestSeq).optional().describe('UTF-16 code units to skip. Default 0.'),
    limit: seq
      .optional()
      .describe(
        'Maximum number of UTF-16 code units; one more if this would split a surrogate pair. Default 20,000.',
      ),
  })
  .superRefine(namesOne);

export type ToolResponse = z.infer<typeof toolResponse>;
export const toolResponse = component(
  'ToolResponse',
  z.object({
    seq: z.int(),
    callId: z.string().nullable().describe('The id in the log; null for a message that answers no call.'),
    tool: z.string().nullable(),
    role: z.enum(roles),
    part: z.int().nullable().describe('Archive part that holds the message; null while it is in the tail.'),
    format: z
      .enum(['text', 'parts', 'message'])
      .describe(
        'The text that `content` is a page of. `text`: the string content, exactly. `parts`: the JSON of its parts. `message`: ' +
          'the JSON of the whole message, if it makes calls or has no content.',
      ),
    content: z.string(),
    offset: z.int().describe('The start of `content`, in UTF-16 code units.'),
    totalCharacters: z.int().describe('Length of all pages, in UTF-16 code units.'),
    nextOffset: z.int().nullable().describe('The start of the next page; null at the end.'),
    occurrences: z
      .array(z.object({ seq: z.int(), part: z.int().nullable() }))
      .describe('All results with this call id, newest first. Ids are reused.'),
  }),
  {
    description: 'The original content of a message, exact and page by page.',
    example: {
      ...{ seq: 3, callId: 'call_1', tool: 'get_order', role: 'tool', part: 1, format: 'text' },
      ...{ content: '{"order": 4711}', offset: 0, totalCharacters: 15, nextOffset: null },
      occurrences: [{ seq: 3, part: 1 }],
    },
  },
);
