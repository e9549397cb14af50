/** What was evicted and how it is read back; going back to it. */
import { z } from 'zod';
import type { PalimpsestClient } from '../../contract/client.js';
import type { LoggedMessage } from '../../conversation/message.js';
import { invalid, isFailure } from '../../errors.js';
import {
  fileMediaType,
  jsonMediaType,
  linesMediaType,
  markdownMediaType,
  ofSession,
  operation,
  Streamed,
} from './operation.js';
import { archivePartList, searchBody, searchResult, toolResponse } from '../schemas/archive.js';
import { wholeInQuery } from '../schemas/component.js';
import { expansion, loggedMessage, messageList, messagePage } from '../schemas/messages.js';
import {
  compactionList,
  compactionOutcome,
  forkBody,
  forked,
  restoreBody,
  timeline,
} from '../schemas/sessions.js';

const tag = 'Archive';
const failures = ['Store.SessionNotFound'] as const;
const reading = [...failures, 'Store.Corrupt'] as const;
const largestSeq = 2 ** 31 - 1;
/** Of one page of the replay; a longer message comes alone. */
const pageCharacters = 5_000_000;

export const archive = [
  operation({
    ...{ method: 'GET', path: '/v1/sessions/{session}/compactions', id: 'compactions', tag, lane: 'heavy' },
    summary: 'Every committed compaction',
    params: ofSession,
    answer: compactionList,
    failures,
    handle: async ({ client, params }) => ({ compactions: await client.compactions(params) }),
  }),
  operation({
    ...{ method: 'GET', path: '/v1/sessions/{session}/timeline', id: 'timeline', tag, lane: 'heavy' },
    summary: "The context's size after each turn, with each compaction",
    params: ofSession,
    answer: timeline,
    failures,
    handle: ({ client, params }) => client.timeline(params),
  }),
  operation({
    ...{ method: 'GET', path: '/v1/sessions/{session}/archive', id: 'archiveParts', tag, lane: 'heavy' },
    summary: 'The archive parts',
    params: ofSession,
    answer: archivePartList,
    failures,
    handle: async ({ client, params }) => {
      const parts = await client.archive(params);
      return { parts: parts.map((part) => ({ ...part, createdAt: new Date(part.createdAt).toISOString() })) };
    },
  }),
  operation({
    ...{
      method: 'GET',
      path: '/v1/sessions/{session}/archive/{part}',
      id: 'archivePart',
      tag,
      lane: 'heavy',
    },
    summary: 'The originals of one archive part, checked against their hashes',
    params: ofSession.extend({ part: wholeInQuery(1, largestSeq).describe('Number of the part.') }),
    answer: messageList,
    failures: reading,
    handle: async ({ client, params: { session, part } }) => ({
      messages: await client.archive({ session, part }),
    }),
  }),
  operation({
    ...{ method: 'GET', path: '/v1/sessions/{session}/replay', id: 'replay', tag, lane: 'heavy' },
    summary: 'Every original in order, a line each; or a page of them',
    description:
      'Without `after` and `limit` the whole log as NDJSON, a `LoggedMessage` a line; where it fails on the way, the ' +
      'last line is `{"problem": …}` and the connection breaks off. With either of them a page as JSON.',
    params: ofSession,
    query: z.strictObject({
      after: wholeInQuery(0, largestSeq - 1)
        .optional()
        .describe('Only messages after this `seq`.'),
      limit: wholeInQuery(1, 1_000).optional().describe('Messages at most. Default 100.'),
    }),
    answer: messagePage,
    answers: {
      200: {
        description: 'The messages, or a page of them.',
        content: { [linesMediaType]: loggedMessage, [jsonMediaType]: messagePage },
      },
    },
    failures: reading,
    handle: async ({ client, params, query: { after, limit } }) =>
      after === undefined && limit === undefined
        ? new Streamed(linesMediaType, lines(client.replay(params)))
        : pageAfter(client, params.session, after ?? 0, limit ?? 100),
  }),
  operation({
    ...{ method: 'GET', path: '/v1/sessions/{session}/export', id: 'export', tag, lane: 'heavy' },
    summary: 'The file that the session was imported from',
    description:
      'The same JSON, or JSON lines where it was lines, with what was appended since; of a session that was appended ' +
      'turn by turn the list of its messages in its own format. Through the last message when the export began. ' +
      'Nothing is redacted. A connection that breaks off means that the file is not whole.',
    params: ofSession,
    answer: null,
    answers: { 200: { description: 'The file.', content: { [fileMediaType]: z.string() } } },
    failures: reading,
    handle: ({ client, params }) => Promise.resolve(new Streamed(fileMediaType, client.export(params))),
  }),
  operation({
    ...{ method: 'GET', path: '/v1/sessions/{session}/messages', id: 'expand', tag, lane: 'heavy' },
    summary: 'A page of originals, of an archive part or of any range',
    params: ofSession,
    query: z.strictObject({
      part: wholeInQuery(1, largestSeq).optional().describe('Archive part. Default: any range of the log.'),
      fromSeq: wholeInQuery(1, largestSeq).optional().describe('First message. Default: the first there is.'),
      limit: wholeInQuery(1, 1_000).optional().describe('Messages at most. Default 50.'),
      maxCharacters: wholeInQuery(1, 50_000_000)
        .optional()
        .describe(
          "UTF-16 code units of the messages' JSON at most; a longer first one comes alone. Default 100,000.",
        ),
    }),
    answer: expansion,
    failures: reading,
    handle: ({ client, params, query }) => client.expand({ ...params, ...query }),
  }),
  operation({
    ...{
      method: 'POST',
      path: '/v1/sessions/{session}/search',
      id: 'search',
      tag,
      lane: 'heavy',
      abandon: true,
    },
    summary: 'Messages that answer a query, best first',
    description: 'By POST, so that no access log on the way keeps what was looked for.',
    params: ofSession,
    body: searchBody,
    answer: searchResult,
    failures,
    handle: ({ client, params, body }) => client.search({ ...params, ...body }),
  }),
  operation({
    ...{ method: 'GET', path: '/v1/sessions/{session}/tool-response', id: 'toolResponse', tag },
    summary: 'The original content of a result, or of any message, page by page',
    params: ofSession,
    query: z.strictObject({
      callId: z.string().optional().describe('Id of the call, as the log or a context shows it; or `seq`.'),
      seq: wholeInQuery(1, largestSeq).optional().describe('Any message; or `callId`.'),
      offset: wholeInQuery(0, largestSeq).optional().describe('UTF-16 code units to leave out. Default 0.'),
      limit: wholeInQuery(1, largestSeq).optional().describe('UTF-16 code units at most. Default 20,000.'),
    }),
    answer: toolResponse,
    failures: reading,
    handle: ({ client, params, query: { callId, seq, ...page } }) => {
      if (callId !== undefined && seq === undefined)
        return client.toolResponse({ ...params, ...page, callId });
      if (callId === undefined && seq !== undefined) return client.toolResponse({ ...params, ...page, seq });
      throw invalid('Give either callId or seq.', 'callId', 'callId: a result; seq: any message of the log.');
    },
  }),
  operation({
    ...{ method: 'GET', path: '/v1/sessions/{session}/history', id: 'historyLog', tag, lane: 'heavy' },
    summary: 'What was evicted so far, as Markdown',
    description: 'A section an archive part; grows at its end only.',
    params: ofSession,
    answer: null,
    answers: { 200: { description: 'The history.', content: { [markdownMediaType]: z.string() } } },
    failures: reading,
    handle: ({ client, params }) =>
      Promise.resolve(new Streamed(markdownMediaType, client.historyLog(params))),
  }),
  operation({
    ...{ method: 'POST', path: '/v1/sessions/{session}/restore', id: 'restore', tag, lane: 'heavy' },
    summary: 'Go back to an earlier generation',
    description: 'Commits a new generation with the head of the earlier one; nothing is deleted.',
    params: ofSession,
    body: restoreBody,
    answer: compactionOutcome,
    failures: [...failures, 'Store.StaleGeneration'],
    handle: ({ client, params, body }) => client.restore({ ...params, ...body }),
  }),
  operation({
    ...{ method: 'POST', path: '/v1/sessions/{session}/fork', id: 'fork', tag, lane: 'heavy' },
    summary: "A new session with this one's log and compactions up to a message",
    description: 'The same fork twice is made once.',
    params: ofSession,
    body: forkBody,
    answer: forked,
    failures,
    handle: ({ client, params, body }) => client.fork({ ...params, ...body }),
  }),
];

async function* lines(messages: AsyncGenerator<LoggedMessage>): AsyncGenerator<string> {
  for await (const message of messages) yield `${JSON.stringify(message)}\n`;
}

/** An empty page behind the end, so that a caller can ask for what is new. */
async function pageAfter(
  client: PalimpsestClient,
  session: string,
  after: number,
  limit: number,
): Promise<{ messages: LoggedMessage[]; next: number | null }> {
  try {
    const { messages, nextSeq } = await client.expand({
      ...{ session, fromSeq: after + 1, limit, maxCharacters: pageCharacters },
    });
    return { messages, next: nextSeq === null ? null : nextSeq - 1 };
  } catch (error) {
    if (isFailure(error, 'Input.Invalid') && error.path === 'fromSeq') return { messages: [], next: null };
    throw error;
  }
}
