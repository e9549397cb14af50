/** The rules for requests are the same in the library, the API and the store. */
import { describe, expect, test } from 'vitest';
import type { z } from 'zod';
import { expandRequest, responseRequest, searchRequest } from '../../../src/contract/archive.js';
import {
  backfillRequest,
  itemsRequest,
  resizeRequest,
  retryRequest,
} from '../../../src/contract/backfills.js';
import { forkRequest, restoreRequest } from '../../../src/contract/compactions.js';
import { contextRequest } from '../../../src/contract/context.js';
import { checkId, encodeIdPart } from '../../../src/contract/ids.js';
import { checked, id } from '../../../src/contract/schema.js';
import { listRequest } from '../../../src/contract/sessions.js';

const invalidAt = (path: string) => expect.objectContaining({ type: 'Input.Invalid', path }) as unknown;

describe('an id', () => {
  const wrong: [string, unknown, RegExp][] = [
    ['is empty', '', /empty/],
    ['is no text', 7, /string/],
    ['contains a NUL', 'a\0', /NUL/],
    ['contains half of a surrogate pair', 'a\ud800', /surrogate/],
    ['is long once percent-encoded', 'ü'.repeat(34), /204 bytes/],
  ];
  test.each(wrong)('that %s is refused in the same way by every check', (_, given, message) => {
    for (const check of [
      () => encodeIdPart(given as string, 'to'),
      () => checkId(given, 'to'),
      () => checked(forkRequest, { to: given, throughSeq: 1 }),
    ])
      expect(check).toThrow(invalidAt('to'));
    expect(() => checkId(given, 'to')).toThrow(message.source === 'empty' ? /non-empty/ : message);
    expect(() => checked(listRequest, { prefix: given })).toThrow(invalidAt('prefix'));
    expect(() => checked(listRequest, { after: given })).toThrow(invalidAt('after'));
    expect(() => checked(itemsRequest, { after: given })).toThrow(invalidAt('after'));
    expect(() => checked(backfillRequest, { job: given })).toThrow(invalidAt('job'));
    expect(() => checked(backfillRequest, { job: 'j', select: { prefix: given } })).toThrow(
      invalidAt('select.prefix'),
    );
  });

  test('may be longer if it is not part of a workflow id', () => {
    expect(id('stored').safeParse('t'.repeat(512)).success).toBe(true);
    expect(id('stored').safeParse('ü'.repeat(257)).success).toBe(false);
    expect(encodeIdPart('a/ü', 'session')).toBe('a%2F%C3%BC');
    expect(id().safeParse('s'.repeat(200)).success).toBe(true);
  });
});

describe('a request is refused', () => {
  const wrong: [z.ZodType, Record<string, unknown>, string][] = [
    [backfillRequest, { job: 'j', select: { minTokens: -1 } }, 'select.minTokens'],
    [backfillRequest, { job: 'j', select: { minTokens: 1.5 } }, 'select.minTokens'],
    [backfillRequest, { job: 'j', select: { idleSince: '2026-01-31' } }, 'select.idleSince'],
    [backfillRequest, { job: 'j', select: { idleSince: '2026-02-30T00:00:00Z' } }, 'select.idleSince'],
    [backfillRequest, { job: 'j', selct: {} }, 'selct'],
    [resizeRequest, { concurrency: 501 }, 'concurrency'],
    [retryRequest, { spendLimit: 0 }, 'spendLimit'],
    [itemsRequest, { state: 'lost' }, 'state'],
    [listRequest, { limit: 1_001 }, 'limit'],
    [listRequest, { limit: Number.NaN }, 'limit'],
    [searchRequest, { query: 'a', limit: 51 }, 'limit'],
    [searchRequest, { query: 'a', after: 11 }, 'after'],
    [searchRequest, { query: 'a', offset: -1 }, 'offset'],
    [searchRequest, { query: 'a', fromSeq: 2 ** 31 }, 'fromSeq'],
    [searchRequest, { query: 'a', role: 'robot' }, 'role'],
    [searchRequest, { query: 'a', mode: 'fuzzy' }, 'mode'],
    [expandRequest, { limit: 0 }, 'limit'],
    [expandRequest, { maxCharacters: 50_000_001 }, 'maxCharacters'],
    [responseRequest, { callId: 'a', limit: 0 }, 'limit'],
    [responseRequest, { callId: '' }, 'callId'],
    [responseRequest, {}, 'callId'],
    [responseRequest, { callId: 'a', seq: 1 }, 'callId'],
    [restoreRequest, { generation: -1 }, 'generation'],
    [forkRequest, { to: 'f', throughSeq: -1 }, 'throughSeq'],
    [forkRequest, { to: 'f', throughSeq: 1.5 }, 'throughSeq'],
    [contextRequest, { budget: 0 }, 'budget'],
    [contextRequest, { waitMs: 300_001 }, 'waitMs'],
    [contextRequest, { format: 'codex' }, 'format'],
  ];
  test.each(wrong)('%#: %s %j at %s', (schema, request, path) => {
    expect(() => checked(schema, request)).toThrow(invalidAt(path));
  });
});
