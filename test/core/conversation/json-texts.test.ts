import fc from 'fast-check';
import { expect, test } from 'vitest';
import { jsonTexts } from '../../../src/conversation/json-texts.js';

test('together the texts are the JSON of the object', () => {
  const field = fc.oneof(fc.jsonValue(), fc.array(fc.jsonValue()), fc.constant(undefined));
  fc.assert(
    fc.property(fc.dictionary(fc.string(), field), (object) => {
      expect([...jsonTexts(object)].join('')).toBe(JSON.stringify(object));
    }),
  );
});

test('each element of a list is a text of its own', () => {
  const texts = [...jsonTexts({ session: 's', messages: ['a', undefined, 'c'], entries: [] })];
  expect(texts).toEqual(['{"session":"s"', ',"messages":["a"', ',null', ',"c"', ']', ',"entries":[]', '}']);
});
