/** A stream of JSON is divided into pieces: for any chunks the pieces are the same, and each parses as in the whole. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { piecesOf, type Piece } from '../../../src/import/pieces.js';

const long = 1_000_000;

async function* chunksOf(text: string, size: number | number[]): AsyncGenerator<string> {
  const sizes = Array.isArray(size) ? size : [size];
  for (let at = 0, turn = 0; at < text.length; turn++) {
    const end = at + Math.max(1, sizes[turn % sizes.length] ?? 1);
    yield text.slice(at, end);
    at = end;
  }
}

async function cut(text: string, size: number | number[] = 7, longest = long) {
  const { layout, pieces } = await piecesOf(chunksOf(text, size), longest);
  const found: Piece[] = [];
  for await (const piece of pieces) found.push(piece);
  return { layout, pieces: found, values: found.map((piece) => valueOf(piece)) };
}

function valueOf({ text, tooLong }: Piece): unknown {
  if (tooLong) return 'too long';
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return 'broken';
  }
}

/** Strings with everything that can be mistaken for structure, and halves of surrogate pairs at the ends of chunks. */
const strings = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 12 }),
  fc.constantFrom(
    '"',
    '\\',
    '\\"',
    '[',
    ']',
    '{',
    '}',
    ',',
    '\n',
    '\u2028',
    '😀',
    '],[',
    '"},{"',
    '\\u0022',
    '\u0000',
  ),
);

const values = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    strings,
    fc.constantFrom(null, true, 0, -1.5e9),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(strings, tie('value'), { maxKeys: 4 }),
  ),
})).value;

const documents = fc.dictionary(strings, values, { maxKeys: 5 });
const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 8 });
const gaps = fc.constantFrom('\n', '\r\n', '\n\n', ' \n\t\r\n');

describe('pieces', () => {
  test('of lines are their values, in any chunks', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(documents, gaps), { minLength: 2, maxLength: 8 }),
        sizes,
        async (lines, size) => {
          const text = lines.map(([value, gap]) => `${JSON.stringify(value)}${gap}`).join('');
          const found = await cut(text, size);
          expect(found.layout).toBe('lines');
          expect(found.values).toEqual(lines.map(([value]) => JSON.parse(JSON.stringify(value)) as unknown));
          expect(found.pieces).toEqual((await cut(text, text.length)).pieces);
        },
      ),
    );
  });

  test('of an array are its elements, in any chunks and any spelling', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(values, { maxLength: 8 }),
        fc.constantFrom(undefined, 1, '\t'),
        sizes,
        async (elements, indent, size) => {
          const text = JSON.stringify(elements, null, indent);
          const found = await cut(text, size);
          expect(found.layout).toBe('elements');
          expect(found.values).toEqual(JSON.parse(text));
          expect(found.pieces).toEqual((await cut(text, text.length)).pieces);
          for (const { line, text: piece } of found.pieces)
            expect(
              text
                .split('\n')
                .slice(line - 1)
                .join('\n')
                .includes(piece.slice(0, 20)),
            ).toBe(true);
        },
      ),
    );
  });

  test('of anything else is one document', async () => {
    await fc.assert(
      fc.asyncProperty(documents, fc.constantFrom(undefined, 2), sizes, async (value, indent, size) => {
        const text = `\n ${JSON.stringify(value, null, indent)}\n`;
        const found = await cut(text, size);
        expect(found.layout).toBe('document');
        expect(found.values).toEqual([JSON.parse(text)]);
      }),
    );
  });

  test('know the line they begin at', async () => {
    expect((await cut('{"a":1}\n\n\r\n{"b":"x\\n"}\n{"c":1}')).pieces.map(({ line }) => line)).toEqual([
      1, 4, 5,
    ]);
    expect((await cut('\n[\n {"a":\n1},\n\n 2]')).pieces.map(({ line }) => line)).toEqual([3, 6]);
  });

  test('in small documents over several lines are not taken for lines', async () => {
    for (const text of [
      '[\n{"a":1}\n]',
      '{"messages":[\n{"role":"user"}\n]}',
      '[\n{"a":1},\n{"a":2}\n]',
      '[\n{"a":1}]',
    ])
      expect((await cut(text)).values, text).toEqual(
        text.startsWith('[') ? JSON.parse(text) : [JSON.parse(text)],
      );
  });

  test('of lines with a broken first one are still lines', async () => {
    const found = await cut('{"id":"a","mess\n{"id":"b"}\n{"id":"c"}\nnonsense\n{"id":"d"}');
    expect(found.layout).toBe('lines');
    expect(found.values).toEqual(['broken', { id: 'b' }, { id: 'c' }, 'broken', { id: 'd' }]);
  });

  test('with one array per line are lines', async () => {
    expect(await cut('[1]\n[2,3]\n')).toMatchObject({ layout: 'lines', values: [[1], [2, 3]] });
  });

  test('that are too long are skipped', async () => {
    const filler = 'x'.repeat(300);
    const lines = await cut(`{"a":1}\n{"b":"${filler}"}\n{"c":1}`, 11, 100);
    expect(lines.values).toEqual([{ a: 1 }, 'too long', { c: 1 }]);
    const elements = await cut(`[{"a":1},{"b":"${filler}"},{"c":1}]`, 11, 100);
    expect(elements.values).toEqual([{ a: 1 }, 'too long', { c: 1 }]);
    expect(elements.pieces[1]?.text).toBe('');
  });

  test('that are broken do not affect the others of an array', async () => {
    const found = await cut('[{"a":1},{"a":1}},nonsense,"x" "y",{"b":2},,{"c":3}]');
    expect(found.values).toEqual([{ a: 1 }, 'broken', 'broken', 'broken', { b: 2 }, 'broken', { c: 3 }]);
  });

  test('of an array that is cut off, or continues after its end, end with an error after the complete ones', async () => {
    const found: unknown[] = [];
    const readAll = async (text: string) => {
      for await (const piece of (await piecesOf(chunksOf(text, 5), long)).pieces) found.push(valueOf(piece));
    };
    await expect(readAll('[{"a":1},\n{"a":2},')).rejects.toThrow('Line 2: the array is not closed.');
    await expect(readAll('[{"a":3}\n] x')).rejects.toThrow('Line 2: text follows the array.');
    expect(found).toEqual([{ a: 1 }, { a: 2 }, { a: 3 }]);
  });

  test('of an empty input are refused', async () => {
    await expect(cut(' \r\n\t')).rejects.toMatchObject({
      type: 'Input.Invalid',
      message: 'The input is empty.',
    });
  });

  test('take time in proportion to the text, even without lines', async () => {
    const filler = 'lorem ipsum '.repeat(1_700_000);
    const texts = [`{"id":"a","text":"${filler}"}`, `[{"text":"${filler}"},{"text":"${filler}"}]`];
    for (const text of texts) {
      const start = performance.now();
      const { pieces } = await cut(text, 4_096, 60_000_000);
      expect(pieces.map(({ text: piece }) => piece.length)).toEqual(
        pieces.map(() => filler.length + (text[0] === '[' ? 11 : 20)),
      );
      expect(performance.now() - start).toBeLessThan(20_000);
    }
  });
});
