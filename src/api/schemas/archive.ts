import { z } from 'zod';
import { roles } from '../../conversation/message.js';
import type {
  ArchivePart,
  FollowingMessage,
  SearchByMeaning,
  SearchHit,
  SearchRequest,
  SearchResult,
  ToolResponse,
} from '../../contract/archive.js';
import { component, moment } from './component.js';

/** Dates are ISO 8601 in JSON. */
type PartInJson = Omit<ArchivePart, 'createdAt'> & { createdAt: string };

const archivePart = component<PartInJson>()(
  'ArchivePart',
  z.object({
    part: z.int(),
    generation: z.int(),
    fromSeq: z.int(),
    throughSeq: z.int(),
    messages: z.int(),
    tokens: z.number(),
    bytes: z.number(),
    sha256: z.string().describe('Over the sha256 of each message, in order.'),
    createdAt: moment,
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

/** What was evicted, and how it is found. */
export const archivePartList = component<{ parts: PartInJson[] }>()(
  'ArchivePartList',
  z.object({ parts: z.array(archivePart) }),
  { description: 'The archive parts, oldest first.', example: { parts: [] } },
);

const searchMode = z.enum(['words', 'substring']);

export const searchBody = component<SearchRequest>()(
  'SearchRequest',
  z.strictObject({
    query: z
      .string()
      .describe('At most 10,000 characters; a substring, or a part in quotation marks, at most 2,000.'),
    mode: searchMode
      .optional()
      .describe(
        '`words`: any of the words, identifiers and rare words first; what stands in `"…"` must occur exactly so. ' +
          '`substring`: the whole query exactly so. Default: by words, and by meaning too where the server has embeddings.',
      ),
    role: z.enum(roles).optional(),
    speaker: z.string().optional().describe('`name` of a message, whatever its case.'),
    tool: z.string().optional().describe('Its results, and the messages that call it.'),
    fromSeq: z.int().min(1).optional(),
    throughSeq: z.int().min(1).optional(),
    from: z
      .string()
      .optional()
      .describe(
        'Only what was said (else stored) then or later: a day, a month or a year in UTC, or an ISO 8601 time.',
      ),
    through: z.string().optional().describe('The same at its end: all of that day, month or year counts.'),
    after: z
      .int()
      .min(0)
      .max(10)
      .optional()
      .describe('Messages behind each hit to answer with it. Default 0.'),
    limit: z.int().min(1).max(50).optional().describe('Hits at most. Default 10.'),
    offset: z.int().min(0).optional().describe('Hits to leave out. Default 0.'),
  }),
  { description: 'A search in archive and tail alike.', example: { query: 'order 4711', limit: 5 } },
);

const said = {
  seq: z.int(),
  role: z.enum(roles),
  speaker: z.string().nullable().describe("The message's `name`."),
  at: moment.nullable().describe('When it was said; null where nobody told.'),
  storedAt: moment,
};

const followingMessage = component<FollowingMessage>()(
  'FollowingMessage',
  z.object({ ...said, text: z.string().describe('Its beginning in one line, at most 500 characters.') }),
  {
    description: 'A message behind a hit.',
    example: {
      ...{ seq: 2, role: 'assistant', speaker: null, at: null, storedAt: '2026-03-02T09:00:04.000Z' },
      text: 'It left the depot on Monday.',
    },
  },
);

const searchHit = component<SearchHit>()(
  'SearchHit',
  z.object({
    ...said,
    tool: z.string().nullable(),
    offset: z.int().describe("Where the match begins in the message's text, in UTF-16 code units."),
    snippet: z.string().describe('One line around the match, which stands between `«` and `»`.'),
    rank: z.number(),
    following: z.array(followingMessage),
  }),
  {
    description: 'A message that answers the query.',
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

const searchByMeaning = component<SearchByMeaning>()(
  'SearchByMeaning',
  z.object({
    failure: z.string().nullable().describe('Why some of it, or all, was left to words alone.'),
    vectors: z.int().describe('Compared.'),
    fromSeq: z.int().nullable().describe('First message that they are of.'),
    throughSeq: z.int().nullable(),
  }),
  {
    description: 'What a search by meaning looked through.',
    example: { failure: null, vectors: 240, fromSeq: 1, throughSeq: 240 },
  },
);

export const searchResult = component<SearchResult>()(
  'SearchResult',
  z.object({
    mode: searchMode.describe('As served.'),
    meaning: searchByMeaning.nullable().describe('Null where only words counted.'),
    hits: z.array(searchHit),
    nextOffset: z.int().nullable(),
  }),
  { description: 'Hits, best first.', example: { mode: 'words', meaning: null, hits: [], nextOffset: null } },
);

export const toolResponse = component<ToolResponse>()(
  'ToolResponse',
  z.object({
    seq: z.int(),
    callId: z.string().nullable(),
    tool: z.string().nullable(),
    role: z.enum(roles),
    part: z.int().nullable().describe('Archive part that holds it; null while it is in the tail.'),
    format: z.enum(['text', 'parts', 'message']).describe('What `content` is a page of.'),
    content: z.string(),
    offset: z.int(),
    totalCharacters: z.int(),
    nextOffset: z.int().nullable(),
    occurrences: z
      .array(z.object({ seq: z.int(), part: z.int().nullable() }))
      .describe('Every result with this call id, newest first.'),
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
