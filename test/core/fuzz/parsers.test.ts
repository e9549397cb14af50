/** A small part of `npm run fuzz`. */
import { expect, test } from 'vitest';
import { parseYaml } from '../../../src/config/yaml.js';
import { fuzzParsers } from '../../fuzz/parsers.js';

test('every parser returns or throws a typed failure', async () => {
  const { inputs, findings } = await fuzzParsers({ seed: 7, inputs: 660 });
  expect(inputs).toBe(660);
  expect(findings.filter(({ problem }) => !problem.startsWith('took'))).toEqual([]);
});

test.each([
  ['an alias without its anchor', 'a: *missing\n', 'anchor'],
  [
    'aliases of aliases without end',
    `a: &a [x, x, x, x, x, x, x, x, x, x]\n${['b', 'c', 'd', 'e']
      .map((name, index) => `${name}: &${name} [${`*${'abcd'[index]}, `.repeat(10)}]\n`)
      .join('')}`,
    'alias',
  ],
])('YAML with %s is a problem of the text', (_, text, said) => {
  const { parsed, problem } = parseYaml(text);
  expect(parsed).toBeUndefined();
  expect(problem).toContain(said);
});
