/** Times from platforms and logs: the accepted forms, and those that are refused or ignored. */
import { describe, expect, test } from 'vitest';
import { instantIn, readInstant } from '../../../src/conversation/instant.js';

const now = Date.parse('2026-03-02T09:00:00Z');

describe('the time of a turn', () => {
  test.each([
    ['2023-05-07T13:04:05Z', '2023-05-07T13:04:05.000Z'],
    ['2023-05-07T13:04Z', '2023-05-07T13:04:00.000Z'],
    ['2023-05-07T13:04:05.123456+02:00', '2023-05-07T11:04:05.123Z'],
    ['1970-01-01T00:00:00Z', '1970-01-01T00:00:00.000Z'],
    ['2026-03-03T09:00:00Z', '2026-03-03T09:00:00.000Z'],
  ])('%s is taken', (given, read) => expect(readInstant(given, 'at', now)).toBe(read));

  test.each([
    ['2023-05-07T13:04:05', 'must be an ISO 8601 instant with its zone'],
    ['2023-05-07', 'must be an ISO 8601 instant with its zone'],
    ['2023-02-29T00:00:00Z', 'must be an ISO 8601 instant with its zone'],
    ['2023-05-07T25:00:00Z', 'must be an ISO 8601 instant with its zone'],
    ['yesterday', 'must be an ISO 8601 instant with its zone'],
    [1_683_464_645, 'must be an ISO 8601 instant with its zone'],
    [null, 'must be an ISO 8601 instant with its zone'],
    ['1969-12-31T23:59:59Z', 'is before 1970'],
    ['2026-03-03T09:00:01Z', 'is more than a day ahead'],
  ])('%s is refused', (given, why) =>
    expect(() => readInstant(given, 'turns[2].at', now)).toThrowError(
      expect.objectContaining({
        type: 'Input.Invalid',
        path: 'turns[2].at',
        message: expect.stringContaining(`turns[2].at ${why}`) as string,
      }),
    ),
  );
});

describe('the time that a log writes', () => {
  test.each([
    ['2025-01-20T20:29:13.519638', '2025-01-20T20:29:13.519Z'],
    [1_734_292_270.899412, '2024-12-15T19:51:10.899Z'],
    [1_783_376_868_634, null],
    [1_683_464_645_000, '2023-05-07T13:04:05.000Z'],
    ['', null],
    [0, '1970-01-01T00:00:00.000Z'],
    [-1, null],
    [NaN, null],
    [{ seconds: 1 }, null],
    [undefined, null],
  ])('%j is read as %s', (written, read) => expect(instantIn(written, now)).toBe(read));
});
