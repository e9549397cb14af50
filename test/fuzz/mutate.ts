/** Seeded changes of JSON values and of texts. The same seed makes the same input. */
import type { Json } from '../../src/conversation/message.js';
import { Random } from '../chaos/random.js';

/** The source of one input: inputs of a run do not depend on each other. */
export function randomFor(seed: number, target: string, index: number): Random {
  let hash = 0x811c9dc5;
  for (const character of `${seed}/${target}/${index}`)
    hash = Math.imul(hash ^ character.charCodeAt(0), 0x01000193);
  const random = new Random(hash);
  random.next();
  return random;
}

export const oddTexts: readonly string[] = [
  ...[
    '',
    ' ',
    '\u0000',
    'a\u0000b',
    '\ud800',
    'x\udc00y',
    '\ufeff',
    '\u202e',
    '😀',
    'é',
    '\u0301',
    '\r\n',
    '\\',
  ],
  ...[
    '__proto__',
    'constructor',
    'toString',
    'null',
    'undefined',
    'NaN',
    '-0',
    '1e999',
    '0x10',
    '9'.repeat(40),
  ],
  ...[
    '%',
    '%00',
    '%2f',
    '%ff',
    '..',
    '../..',
    './.',
    '/',
    '//',
    '?',
    '#',
    ';',
    "' or 1=1 --",
    '$1',
    '{{x}}',
    '<x/>',
  ],
  ...[
    '(a+)+$',
    '[',
    '*',
    '\\1',
    '(?=a)',
    '2026-13-40T99:99:99Z',
    '2026-03-02T09:00:00Z',
    '+275760-09-13T00:00:00Z',
  ],
  ...[
    '[m1]',
    '[REDACTED:x]',
    '# Summary',
    '```json',
    'data:image/png;base64,iVBORw0KGgo=',
    'sk-abcdefghijklmnopqrstuv',
  ],
];

const oddNumbers: readonly number[] = [
  ...[
    0,
    -0,
    1,
    -1,
    2,
    0.5,
    -0.5,
    1e-320,
    1e21,
    1e308,
    2 ** 31 - 1,
    2 ** 31,
    2 ** 32,
    2 ** 53 - 1,
    2 ** 53,
    -(2 ** 63),
  ],
];

export function oddText(random: Random): string {
  const kind = random.next();
  if (kind < 0.7) return random.pick(oddTexts);
  if (kind < 0.9)
    return Array.from({ length: random.between(1, 30) }, () =>
      String.fromCodePoint(random.between(0, random.chance(0.5) ? 0x7f : 0xffff)),
    ).join('');
  return random.pick(oddTexts).repeat(random.between(1, random.chance(0.05) ? 20_000 : 200));
}

export function oddValue(random: Random): Json {
  switch (random.between(0, 9)) {
    case 0:
      return null;
    case 1:
      return random.chance(0.5);
    case 2:
    case 3:
      return random.pick(oddNumbers);
    case 4:
      return [];
    case 5:
      return {};
    case 6:
      return nested(
        random.chance(0.1) ? random.between(100, 1_500) : random.between(1, 20),
        random.chance(0.5),
      );
    case 7:
      return JSON.parse(
        `{${JSON.stringify(random.pick(['__proto__', 'constructor', 'toJSON', 'then', 'length']))}:{"polluted":true}}`,
      ) as Json;
    default:
      return oddText(random);
  }
}

function nested(depth: number, inArrays: boolean): Json {
  let value: Json = 'deep';
  for (let level = 0; level < depth; level++) value = inArrays ? [value] : { a: value };
  return value;
}

interface Place {
  holder: Record<string, Json> | Json[];
  key: string | number;
}

function placesIn(value: Json, found: Place[] = []): Place[] {
  if (typeof value !== 'object' || value === null || found.length > 500) return found;
  for (const key of Object.keys(value)) {
    found.push({ holder: value, key: Array.isArray(value) ? Number(key) : key });
    placesIn((value as Record<string, Json>)[key] ?? null, found);
  }
  return found;
}

/** Sets an own property, `__proto__` included. */
function put(holder: Place['holder'], key: string | number, value: Json): void {
  Object.defineProperty(holder, key, { value, enumerable: true, configurable: true, writable: true });
}

/** A copy with up to `most` changes; 0 leaves the value as it is. */
export function mutated(random: Random, value: Json, most = 3): Json {
  let copy = structuredClone(value);
  for (let left = random.between(0, most); left > 0; left--) {
    const places = placesIn(copy);
    if (places.length === 0 || random.chance(0.03)) {
      copy = oddValue(random);
      continue;
    }
    const { holder, key } = random.pick(places);
    const here = (holder as Record<string | number, Json>)[key] ?? null;
    switch (random.between(0, 7)) {
      case 0:
        if (Array.isArray(holder)) holder.splice(Number(key), 1);
        else delete holder[key];
        break;
      case 1:
        if (Array.isArray(holder)) holder.push(structuredClone(here));
        else put(holder, oddText(random), oddValue(random));
        break;
      case 2:
        // The value of another place, of another kind perhaps.
        put(holder, key, structuredClone(valueOf(random.pick(places))));
        break;
      case 3:
        put(holder, key, [here]);
        break;
      case 4:
        put(holder, key, typeof here === 'string' ? here + oddText(random) : oddValue(random));
        break;
      case 5:
        if (typeof here === 'number') put(holder, key, -here);
        else put(holder, key, String(JSON.stringify(here)));
        break;
      default:
        put(holder, key, oddValue(random));
    }
  }
  return copy;
}

const valueOf = ({ holder, key }: Place): Json => (holder as Record<string | number, Json>)[key] ?? null;

const fragments: readonly string[] = [
  ...[
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    '"',
    "'",
    '\\',
    '\\u',
    '\\ud800',
    '\\u0000',
    '1e999',
    '-',
    '0123',
    'NaN',
    'tru',
  ],
  ...[
    '12345678901234567890123',
    '0.1000000000000000055511151231257827',
    '{"a":1,"a":2}',
    '/*',
    '//',
    '&a ',
    '*a',
    '!!js/x ',
  ],
  ...[
    '\n',
    '\r',
    '\t',
    '\u0000',
    '\ufeff',
    '\u2028',
    '- ',
    '? ',
    '<<: *a',
    '%YAML 9.9\n',
    '---\n',
    '...\n',
    '"__proto__":{},',
  ],
];

/** A text with up to four of: a piece cut out, doubled, replaced or inserted; an end cut off. */
export function mutatedText(random: Random, text: string): string {
  let changed = text;
  for (let left = random.between(0, 4); left > 0; left--) {
    const from = random.between(0, changed.length);
    const to = Math.min(changed.length, from + random.between(0, 12));
    const [before, piece, behind] = [changed.slice(0, from), changed.slice(from, to), changed.slice(to)];
    switch (random.between(0, 4)) {
      case 0:
        changed = before + behind;
        break;
      case 1:
        changed = before + piece.repeat(random.chance(0.05) ? 500 : 3) + behind;
        break;
      case 2:
        changed = before;
        break;
      case 3:
        changed = before + oddText(random) + behind;
        break;
      default:
        changed =
          before +
          (random.chance(0.03)
            ? random.pick(['[', '{"a":', '- ', '(']).repeat(20_000)
            : random.pick(fragments)) +
          behind;
    }
  }
  return changed;
}

/** The bytes of a text, sometimes in another encoding or with a byte changed. */
export function bytesFor(random: Random, text: string): Buffer {
  const kind = random.next();
  if (kind < 0.03) return Buffer.from(text, 'utf16le');
  if (kind < 0.05) return Buffer.from(text, 'latin1');
  const bytes = Buffer.from(text);
  if (kind < 0.15 && bytes.length > 0) bytes[random.between(0, bytes.length - 1)] = random.between(0, 255);
  return bytes;
}
