import { z } from 'zod';
import { invalid } from '../../errors.js';
import { JsonPieces, jsonMediaType, ofSession, operation, Reply } from './operation.js';
import { contextRequest, sessionContext } from '../../contract/context.js';
import { syncBody, synced } from '../../contract/sync.js';
import { appendedTurn, turnBody } from '../../contract/turns.js';
import { needScope } from '../problem.js';
import { inQuery } from './query.js';

const { waitMs: wait, ...shape } = contextRequest.shape;

const tag = 'Turns and context';

/** The hot path of an agent: append a turn, read the context. */
export const turns = [
  operation({
    id: 'appendTurn',
    tag,
    abandon: true,
    summary: 'Store a turn',
    description:
      'Answers once the turn is durable, and never waits for a compaction. The first turn creates the session. The same ' +
      '`turnId` with the same messages is stored once and gets the same answer. A turn with `policy` needs the scope `policy` ' +
      'as well.',
    params: ofSession,
    takesTurns: true,
    body: turnBody,
    fieldScopes: { policy: 'policy' },
    headers: { 'Idempotency-Key': 'The `turnId`, for clients that send it as a header.' },
    answer: appendedTurn,
    failures: ['Store.TurnConflict', 'Store.StaleAppend', 'Tenant.BeyondLimit'],
    handle: async ({ client, params, body, headers }) => {
      const { turnId, ...turn } = body;
      return client.appendTurn({ ...turn, ...params, turnId: idOf(turnId, headers['idempotency-key']) });
    },
  }),
  operation({
    id: 'sync',
    tag,
    abandon: true,
    summary: 'Store what is new in a list of messages, and get the messages to send to the model now',
    description:
      'For clients that hold the whole list. The list may begin with a context that an earlier call answered. What the session ' +
      'has is not stored again. The token also needs the scope `read`, and for `policy` the scope `policy`.',
    params: ofSession,
    takesTurns: true,
    body: syncBody,
    fieldScopes: { policy: 'policy' },
    answer: synced,
    failures: ['Store.ListEdited', 'Store.StaleAppend', 'Tenant.BeyondLimit', 'Budget.Unreachable'],
    handle: async ({ client, access, params, body }) => {
      needScope(access, 'read');
      return new Reply(200, new JsonPieces(await client.syncJson({ ...body, ...params })));
    },
  }),
  operation({
    id: 'context',
    tag,
    summary: 'Get the messages to send to the model now',
    description:
      'The context is valid for its provider and never longer than the budget, even during a compaction.',
    params: ofSession,
    query: inQuery(z.object({ ...shape, wait })),
    headers: { 'If-None-Match': 'ETag of the context that the caller has.' },
    answer: sessionContext,
    answers: {
      200: {
        description: 'The context.',
        content: { [jsonMediaType]: sessionContext },
        headers: { ETag: 'Changes whenever the messages change.' },
      },
      304: {
        description: 'The messages are the same as those of the ETag in `If-None-Match`.',
        headers: { ETag: 'The same ETag as before.' },
      },
    },
    failures: ['Store.SessionNotFound', 'Input.TooLarge', 'Budget.Unreachable'],
    waits: ({ wait }) => wait !== undefined && wait > 0,
    handle: async ({ client, params, query: { wait, ...shape }, headers }) => {
      const known = entityTags(headers['if-none-match']);
      const waiting = wait ? { waitMs: wait } : {};
      const { etag: tag, pieces } = await client.contextJson({ ...params, ...shape, ...waiting });
      // The tag is weak: two contexts with the same messages may differ in other fields.
      const etag = `W/"${tag}"`;
      if (known.includes('*') || known.includes(tag)) return new Reply(304, undefined, { etag });
      return new Reply(200, new JsonPieces(pieces), { etag });
    },
  }),
];

function idOf(turnId: string | undefined, key: string | string[] | undefined): string {
  if (key === undefined) {
    if (turnId !== undefined) return turnId;
    throw invalid('turnId is missing.', 'turnId', 'Give it in the body, or as the header `Idempotency-Key`.');
  }
  if (typeof key !== 'string' || !/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(key)) {
    throw invalid(
      'The header Idempotency-Key must be one printable ASCII text.',
      'headers.idempotency-key',
      'Give an id with other characters as `turnId` in the body.',
    );
  }
  if (turnId === undefined || turnId === key) return key;
  throw invalid(
    'turnId and the header Idempotency-Key differ.',
    'turnId',
    'Give only one of them, or the same value in both.',
  );
}

/** The opaque tags of a list in the syntax of RFC 9110; `*` for any. */
function entityTags(header: string | string[] | undefined): string[] {
  if (header === undefined) return [];
  const text = String(header).trim();
  if (text === '*') return ['*'];
  const tag = /(?:W\/)?"([\x21\x23-\x7e\x80-\xff]*)"/;
  if (!new RegExp(`^${tag.source}(?:\\s*,\\s*${tag.source})*$`).test(text)) {
    throw invalid(
      'The header If-None-Match is not a list of entity tags.',
      'headers.if-none-match',
      'Send the ETag unchanged, e.g. W/"4bb1c1c1f0f63a3ad8cbd8d0fb0a4a1c".',
    );
  }
  return [...text.matchAll(new RegExp(tag, 'g'))].map(([, opaque = '']) => opaque);
}
