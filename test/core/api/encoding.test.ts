import { expect, test } from 'vitest';
import { encodingFor } from '../../../src/api/send-json.js';

test.each([
  [undefined, null],
  ['', null],
  ['gzip', 'gzip'],
  ['br', 'br'],
  ['gzip, deflate, br', 'gzip'],
  ['GZIP;Q=0.5 , br ; q=0.8', 'br'],
  ['*', 'gzip'],
  ['*;q=0.5, gzip;q=0', 'br'],
  ['gzip;q=0, br;q=0', null],
  ['identity', null],
  ['identity, gzip;q=0.5', null],
  ['identity;q=0.5, gzip', 'gzip'],
  ['deflate, zstd', null],
  ['gzip;q=wrong', 'gzip'],
])('%s: %s', (accepted, encoding) => {
  expect(encodingFor(accepted)).toBe(encoding);
});
