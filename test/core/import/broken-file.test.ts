/** A file with one broken session: its hint is about this file alone. */
import { expect, test } from 'vitest';
import { readRecords } from '../../../src/import/records.js';

test('the hint of a broken file names no other sessions', async () => {
  async function* bytes() {
    yield Buffer.from('{"messages": [{"role": "user", "content": "Cut');
  }
  const records = [];
  for await (const record of readRecords(bytes(), 'talk.json')) records.push(record);
  expect(records).toEqual([
    expect.objectContaining({
      id: 'talk.json',
      error: expect.objectContaining({
        type: 'Input.Invalid',
        hint: 'Correct the session there, and import it again: nothing is stored twice.',
      }),
    }),
  ]);
});
