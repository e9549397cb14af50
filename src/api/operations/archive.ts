/** Reading evicted messages, and going back to earlier generations. */
import { z } from 'zod';
import type { PalimpsestClient } from '../../contract/client.js';
import type { LoggedMessage } from '../../conversation/message.js';
import { isFailure } from '../../errors.js';
import {
  fileMediaType,
  linesMediaType,
  markdownMediaType,
  ofSession,
  operation,
  Reply,
  Streamed,
} from './operation.js';
import { inQuery } from './query.js';
import {
  archivePartList,
  expandRequest,
  expansion,
  messageList,
  partNumber,
  replayRequest,
  namesOne,
  responseRequest,
  searchRequest,
  searchResult,
  toolResponse,
} from '../../contract/archive.js';
import {
  compactionList,
  compactionOutcome,
  forked,
  forkRequest,
  restoreRequest,
  timeline,
} from '../../contract/compactions.js';

const tag = 'Archive';
const failures = ['Store.SessionNotFound'] as const;
const reading = [...failures, 'Store.Corrupt'] as const;
/** Characters of one page of the replay. A longer message is a page of its own. */
const pageCharacters = 5_000_000;

export const archive = [
  operation({
    id: 'compactions',
    tag,
    lane: 'heavy',
    summary: 'List the committed compactions',
    params: ofSession,
    answer: compactionList,
    failures,
    handle: async ({ client, params }) => ({ compactions: await client.compactions(params) }),
  }),
  operation({
    id: 'timeline',
    tag,
    lane: 'heavy',
    summary: 'Get the size of the context after each turn, with each compaction',
    params: ofSession,
    answer: timeline,
    failures,
    handle: ({ client, params }) => client.timeline(params),
  }),
  operation({
    id: 'archiveParts',
    tag,
    lane: 'heavy',
    summary: 'List the archive parts',
    params: ofSession,
    answer: archivePartList,
    failures,
    handle: async ({ client, params }) => ({ parts: await client.archive(params) }),
  }),
  operation({
    id: 'archivePart',
    tag,
    lane: 'heavy',
    summary: 'Get the originals of one archive part, checked against their hashes',
    params: ofSession.extend(inQuery(z.object({ part: partNumber })).shape),
    answer: messageList,
    failures: reading,
    handle: async ({ client, params: { session, part } }) => ({
      messages: await client.archive({ session, part }),
    }),
  }),
  operation({
    id: 'replay',
    tag,
    lane: 'heavy',
    summary: 'Get all originals in order, one per line',
    description:
      'Returns the whole log as NDJSON with one `LoggedMessage` per line. If it fails midway, the last line is `{"problem": …}` ' +
      'and the connection is closed. `expand` returns pages.',
    params: ofSession,
    query: inQuery(replayRequest),
    answer: null,
    answers: {
      200: {
        description: 'The messages.',
        content: { [linesMediaType]: z.string().describe('One `LoggedMessage` per line.') },
      },
    },
    failures: reading,
    handle: async ({ client, params, query: { after, limit } }) =>
      after === undefined && limit === undefined
        ? new Streamed(linesMediaType, lines(client.replay(params)))
        : new Reply(200, await pageAfter(client, params.session, after ?? 0, limit ?? 100)),
  }),
  operation({
    id: 'export',
    tag,
    lane: 'heavy',
    summary: 'Export the session in the format of its import',
    description:
      'Returns the imported file with the turns appended since, in JSON or JSON Lines like the original. A session appended ' +
      'turn by turn is returned as the list of its messages in its own format. Covers the log as it was when the export began. ' +
      'Nothing is redacted. If the connection breaks, the file is incomplete.',
    params: ofSession,
    answer: null,
    answers: { 200: { description: 'The file.', content: { [fileMediaType]: z.string() } } },
    failures: reading,
    handle: ({ client, params }) => Promise.resolve(new Streamed(fileMediaType, client.export(params))),
  }),
  operation({
    id: 'expand',
    tag,
    lane: 'heavy',
    summary: 'Get a page of originals from an archive part or from any range',
    params: ofSession,
    query: inQuery(expandRequest),
    answer: expansion,
    failures: reading,
    handle: ({ client, params, query }) => client.expand({ ...params, ...query }),
  }),
  operation({
    id: 'search',
    tag,
    lane: 'heavy',
    abandon: true,
    summary: 'Search for messages, best match first',
    description: 'Uses POST, so that access logs do not keep the query.',
    params: ofSession,
    body: searchRequest,
    answer: searchResult,
    failures,
    handle: ({ client, params, body }) => client.search({ ...params, ...body }),
  }),
  operation({
    id: 'toolResponse',
    tag,
    summary: 'Get the original content of a tool result, or of any message, page by page',
    params: ofSession,
    query: inQuery(responseRequest).superRefine(namesOne),
    answer: toolResponse,
    failures: reading,
    handle: ({ client, params, query: { callId = '', seq, ...page } }) =>
      client.toolResponse({ ...params, ...page, ...(seq === undefined ? { callId } : { seq }) }),
  }),
  operation({
    id: 'historyLog',
    tag,
    lane: 'heavy',
    summary: 'Get the evicted messages as Markdown',
    description:
      'One section for each archive part. The text grows only at its end, unless an earlier generation is restored.',
    params: ofSession,
    answer: null,
    answers: { 200: { description: 'The history.', content: { [markdownMediaType]: z.string() } } },
    failures: reading,
    handle: ({ client, params }) =>
      Promise.resolve(new Streamed(markdownMediaType, client.historyLog(params))),
  }),
  operation({
    id: 'restore',
    tag,
    lane: 'heavy',
    summary: 'Go back to an earlier generation',
    description: 'Commits a new generation with the head of the earlier one. Nothing is deleted.',
    params: ofSession,
    body: restoreRequest,
    answer: compactionOutcome,
    failures: [...failures, 'Store.StaleGeneration'],
    handle: ({ client, params, body }) => client.restore({ ...params, ...body }),
  }),
  operation({
    id: 'fork',
    tag,
    lane: 'heavy',
    summary: 'Make a new session with the log and compactions of this one up to a message',
    description: 'A repeated request makes no second fork.',
    params: ofSession,
    body: forkRequest,
    answer: forked,
    failures: [...failures, 'Tenant.BeyondLimit'],
    handle: ({ client, params, body }) => client.fork({ ...params, ...body }),
  }),
];

async function* lines(messages: AsyncGenerator<LoggedMessage>): AsyncGenerator<string> {
  for await (const message of messages) yield `${JSON.stringify(message)}\n`;
}

/** Returns an empty page after the end of the log, so that a caller can poll for new messages. */
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
