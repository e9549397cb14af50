/** A text without a form's signs or marks is not searched, so that a match without them would stay in the text. */
import { RegExpParser, type AST } from '@eslint-community/regexpp';
import { expect, test } from 'vitest';
import { secretForms } from '../../../src/summary/redaction/forms.js';

/** Beginnings of matches without a sign: their ends as far as a sign may go on after them, and an example of each. */
type Beginnings = ReadonlyMap<string, string>;

/** Stands for any character of a class with many members. */
const ANY = '\0';

/** Returns the beginnings that become whole matches, as examples: each is a match without any of `signs`. */
function matchesWithout(signs: readonly string[], { source, flags }: RegExp): string[] {
  const longest = Math.max(...signs.map((sign) => sign.length));
  const parsed = new RegExpParser().parsePattern(source, 0, source.length, {
    unicode: flags.includes('u'),
  });
  return [...oneOf(parsed.alternatives, new Map([['', '']])).values()];

  function oneOf(alternatives: readonly AST.Alternative[], before: Beginnings): Beginnings {
    return union(
      ...alternatives.map(({ elements }) =>
        elements.reduce((sofar, element) => after(sofar, element), before),
      ),
    );
  }

  function after(before: Beginnings, element: AST.Element): Beginnings {
    switch (element.type) {
      case 'Group':
      case 'CapturingGroup':
        return oneOf(element.alternatives, before);
      case 'Character':
        return followedBy(before, [element.value]);
      case 'CharacterClass':
        return followedBy(before, membersOf(element));
      case 'CharacterSet':
        return followedBy(before, setOf(element));
      case 'Quantifier':
        return repeated(before, element);
      case 'Assertion':
        // A match includes the text before its beginning that it depends on; other assertions add no character.
        return element.kind === 'lookbehind' && !element.negate && before.has('')
          ? oneOf(element.alternatives, before)
          : before;
      case 'Backreference':
      case 'ExpressionCharacterClass':
        return followedBy(before, null);
    }
  }

  function repeated(before: Beginnings, { min, max, element }: AST.Quantifier): Beginnings {
    let [all, last] = [min === 0 ? before : new Map<string, string>(), before];
    for (let times = 1; times <= Math.min(max, Math.max(min, longest)); times++) {
      last = after(last, element);
      const seen = all.size;
      if (times >= min) all = union(all, last);
      if (times > min && all.size === seen) break;
    }
    return all;
  }

  function followedBy(before: Beginnings, codes: readonly number[] | null): Beginnings {
    const next = new Map<string, string>();
    for (const [end, example] of before)
      for (const character of codes?.map((code) => String.fromCodePoint(code).toLowerCase()) ?? [ANY]) {
        const text = end + character;
        if (signs.some((sign) => text.endsWith(sign))) continue;
        next.set(endInSign(text), example + character);
      }
    return next;
  }

  /** The longest end of the text with which a sign begins. */
  function endInSign(text: string): string {
    for (let from = Math.max(0, text.length - longest); ; from++) {
      const end = text.slice(from);
      if (signs.some((sign) => sign.startsWith(end))) return end;
    }
  }
}

function union(...all: readonly Beginnings[]): Beginnings {
  return new Map(all.flatMap((some) => [...some]));
}

/** Null if there are many. */
function membersOf({ negate, elements }: AST.CharacterClass): number[] | null {
  if (negate) return null;
  const members = elements.map((one) => {
    if (one.type === 'Character') return [one.value];
    if (one.type === 'CharacterSet') return setOf(one);
    if (one.type !== 'CharacterClassRange') return null;
    const { min, max } = one;
    return Array.from({ length: max.value - min.value + 1 }, (_, index) => min.value + index);
  });
  const known = members.filter((some) => some !== null);
  const count = known.flat().length;
  return known.length < members.length || count > 20 ? null : known.flat();
}

function setOf({ kind, ...set }: AST.CharacterSet): number[] | null {
  return kind === 'digit' && 'negate' in set && !set.negate
    ? [...'0123456789'].map((one) => one.charCodeAt(0))
    : null;
}

test.each(secretForms.map((one, index) => ({ ...one, name: `${index} ${one.kind}` })))(
  'every match of form $name has a sign and a mark',
  ({ form, signs, marks }) => {
    for (const list of [signs, marks ?? []])
      if (list.length > 0) expect(matchesWithout(list, form)).toEqual([]);
  },
);

test('a match without a sign is found', () => {
  const form = /(?<=x)(?:pass|pas(?:s|t)|a[-_]b|(?:c\d){2}|q{0,3}pass)(?!z)/;
  expect(matchesWithout(['pass', 'a-b', 'c0'], form).length).toBeGreaterThan(0);
  expect(matchesWithout(['pas', 'a-b', 'c0'], form)).toEqual(['xc9c9']);
  expect(matchesWithout(['pas', 'b', 'c'], form)).toEqual([]);
});
