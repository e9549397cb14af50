/** Fields of a body are replaced in its text, and every other byte stays. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Json } from '../../../src/conversation/message.js';
import { withFields, withoutItems } from '../../../src/gateway/fields.js';

describe('fields of a JSON text', () => {
  test.each<[string, Record<string, Json>, string]>([
    ['{}', { a: 1 }, '{"a":1}'],
    [' { } ', { a: 1, b: 2 }, ' {"a":1,"b":2 } '],
    ['{"a":1}', { a: [] }, '{"a":[]}'],
    ['{"a" : 1.0 , "b":1e2}', { a: 'x' }, '{"a" : "x" , "b":1e2}'],
    ['{"b":{"a":1},"a":"}\\"]"}', { a: null }, '{"b":{"a":1},"a":null}'],
    ['{"\\u0061":"\\\\","c":12345678901234567890}', { a: true }, '{"\\u0061":true,"c":12345678901234567890}'],
    ['{"x":[[{"a":"[{"}]],"a":0}\n', { a: 2, y: 3 }, '{"x":[[{"a":"[{"}]],"a":2,"y":3}\n'],
  ])('%s with %j', (text, fields, wanted) => expect(withFields(text, fields)).toBe(wanted));

  test('any object with any fields', () => {
    fc.assert(
      fc.property(
        fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue(), { noNullPrototype: true }),
        fc.dictionary(fc.constantFrom('messages', 'tools', 'a'), fc.jsonValue(), { noNullPrototype: true }),
        fc.constantFrom(undefined, 1, '\t'),
        (object, fields, indent) => {
          const text = JSON.stringify(object, null, indent);
          const wanted = JSON.parse(JSON.stringify({ ...object, ...fields }));
          expect(JSON.parse(withFields(text, fields as Record<string, Json>))).toEqual(wanted);
        },
      ),
    );
  });
});

describe('items of a list in a JSON text', () => {
  const isOut = (item: Json) => item === 0;

  test.each<[string, string]>([
    ['{"a":{"b":[0]}}', '{"a":{"b":[]}}'],
    ['{"a":{"b":[ 1.0 , 0,\n0 ] , "c":1e2}}', '{"a":{"b":[ 1.0 ] , "c":1e2}}'],
    ['{"a":{"b":[0,0, "]", {"b":[0]} ]}}', '{"a":{"b":["]", {"b":[0]} ]}}'],
    ['{"a":{"b":[1, 0, 2 ,0 ,3]},"b":[0]}', '{"a":{"b":[1, 2 ,3]},"b":[0]}'],
    ['{"a":{"b":[ 1.0,[0] ]}}', '{"a":{"b":[ 1.0,[0] ]}}'],
    ['{"a":{"b":[]}}', '{"a":{"b":[]}}'],
    ['{"a":{"c":[0]},"b":[0]}', '{"a":{"c":[0]},"b":[0]}'],
  ])('%s without zeros', (text, wanted) => expect(withoutItems(text, ['a', 'b'], isOut)).toBe(wanted));

  test('any list', () => {
    fc.assert(
      fc.property(
        fc.array(fc.oneof(fc.constant(0), fc.jsonValue())),
        fc.constantFrom(undefined, 1, '\t'),
        (list, indent) => {
          const textOf = (items: unknown[]) => JSON.stringify({ x: '[', list: items }, null, indent);
          const kept = list.filter((item) => item !== 0);
          const left = withoutItems(textOf(list), ['list'], isOut);
          expect(JSON.parse(left)).toEqual(JSON.parse(textOf(kept)));
          if (kept.length > 0) expect(left).toBe(textOf(kept));
        },
      ),
    );
  });
});
