/** What counts as an atom, and what of the noise of shells, diffs, listings and style sheets does not. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { constraintAtoms, errorAtoms, wordAtoms, type AtomKind } from '../../../src/summary/ledger/atoms.js';

describe('atoms', () => {
  const found = (text: string) => {
    const atoms: [AtomKind, string][] = [];
    wordAtoms(text, (kind, atom) => atoms.push([kind, atom]));
    return atoms;
  };

  test.each<[string, AtomKind, string]>([
    ['edit src/auth/login.ts:42, then', 'path', 'src/auth/login.ts'],
    ['(see `/etc/nginx/nginx.conf`).', 'path', '/etc/nginx/nginx.conf'],
    ['in app/(group)/[id]/route.ts:', 'path', 'app/(group)/[id]/route.ts'],
    ['open package.json', 'path', 'package.json'],
    ['cd ~/work/x-1', 'path', '~/work/x-1'],
    ['C:\\Users\\ann\\a.txt is', 'path', 'C:\\Users\\ann\\a.txt'],
    ['see https://example.org/a?b=1&c=2.', 'url', 'https://example.org/a?b=1&c=2'],
    ['commit 9f8c2d1e4b', 'hash', '9f8c2d1e4b'],
    ['id 3f2b8c1e-1111-4222-8333-abcdefabcdef;', 'id', '3f2b8c1e-1111-4222-8333-abcdefabcdef'],
    ['order #W2378156?', 'id', '#W2378156'],
    ['user mia_li_3668', 'id', 'mia_li_3668'],
    ['product 1725100896,', 'id', '1725100896'],
    ['mail ann@example.org', 'id', 'ann@example.org'],
    ['call getUserById()', 'id', 'getUserById'],
    ['set MAX_RETRIES=5', 'id', 'MAX_RETRIES'],
    ['node v20.19.4', 'version', 'v20.19.4'],
    ['vitest@4.1.12', 'version', 'vitest@4.1.12'],
    ['took 350 ms', 'value', '350 ms'],
    ['costs $1,234.50 now', 'value', '$1,234.50'],
    ['at 15% load', 'value', '15%'],
    ['on 2024-05-15', 'value', '2024-05-15'],
    ['{"user_id": "sara_doe_496", "n": "a\\nb_c.py"}', 'id', 'sara_doe_496'],
    ['{"user_id": "sara_doe_496", "n": "a\\nb_c.py"}', 'path', 'b_c.py'],
  ])('%j holds %s %j', (text, kind, atom) => {
    expect(found(text)).toContainEqual([kind, atom]);
  });

  test.each<[string, AtomKind, string]>([
    ['diff --git a/src/x.ts b/src/x.ts\n--- a/src/x.ts', 'path', 'src/x.ts'],
    ['packages/services/src/get.ts:import { x }', 'path', 'packages/services/src/get.ts'],
    ['from "@/client/ui/sidebar"', 'path', '@/client/ui/sidebar'],
    ['issue #666 is open', 'id', '#666'],
    ['branch a/b', 'path', 'none'],
  ])('%j: %s %s, without what stands around it', (text, kind, atom) => {
    const atoms = found(text).filter(([one]) => one === kind);
    expect(atoms.map(([, one]) => one)).toEqual(atom === 'none' ? [] : atoms.map(() => atom));
    expect(atoms.length > 0).toBe(atom !== 'none');
  });

  test.each([
    'cat x > /dev/null 2>&1',
    "sed -e 's/.*gross/net/'",
    "sed -n '40,200p'",
    'index be613ab..f0c6742 100644',
    'color: #1a1a2e; background: #fff;',
    'hover:bg-gray-800 md:h-8 -translate-y-2 opacity-100',
    'margin: 0.8em; width: 100vh; top: 1rem;',
    'String.trim/1',
    'at /path/to/file',
    '--title/--notes',
    'and/or',
    'n/a',
    '1/2',
    'the end. Next',
    '{"user_id": 1}',
    '<div></div>',
    'className="mt-4 px-2 text-gray-500"',
    'in 2024',
    '3rd',
    'e.g. this',
    'A-B test',
    'self-contained',
  ])('%j holds none', (text) => {
    expect(found(text).filter(([, atom]) => atom !== 'className')).toEqual([]);
  });

  test('every word atom stands in its text', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 300 }), (noise) => {
        const text = `x ${noise}`; // not JSON, whose escapes are resolved
        wordAtoms(text, (_kind, atom) => expect(text).toContain(atom));
      }),
    );
  });

  test('rules and error lines', () => {
    const rules: string[] = [];
    constraintAtoms(
      'Hello there. You must never push to main! Thanks.\n- Only use tabs.\nread-only mode',
      (_k, rule) => rules.push(rule),
    );
    expect(rules).toEqual(['You must never push to main!', 'Only use tabs.']);
    const errors: string[] = [];
    errorAtoms(
      'ok\nTypeError: x is undefined\n  at foo\nbash: fd: command not found\nno errors here',
      (_k, error) => errors.push(error),
    );
    expect(errors).toEqual(['TypeError: x is undefined', 'bash: fd: command not found']);
  });

  test('lines of a program that mention an error report none', () => {
    const errors: string[] = [];
    const listing = [
      '   94→\ttoast.error("Session expired: log in again");',
      '282 except ValueError:',
      '    raise ModelDefinitionError(',
      '+    throw new TypeError("bad: " + name);',
      '    } catch (error: unknown) {',
      'console.error("failed: x")',
      'ValueError: could not convert string to float',
      'src/a.ts(4,2): error TS2307: Cannot find module x',
    ];
    errorAtoms(listing.join('\n'), (_kind, error) => errors.push(error));
    expect(errors).toEqual(listing.slice(-2));
  });
});
