/**
 * Black-box cases read from the test suites of other compaction libraries, replayed against the pure core. A case passes
 * exactly, or `peer-cases/deviations.ts` lists its deviation with the reason; then only its properties are checked.
 */
import { afterAll, describe, expect, test } from 'vitest';
import { contradictions } from '../../peer-cases/checks.js';
import { readPeerCases } from '../../peer-cases/case.js';
import { deviations } from '../../peer-cases/deviations.js';
import { violatedProperties } from '../../peer-cases/properties.js';
import { replay } from '../../peer-cases/replay.js';

const cases = readPeerCases();
const totals = { exact: 0, properties: 0, deviations: 0 };

describe.skipIf(cases === null)("peers' cases", () => {
  for (const peer of cases ?? [])
    test(`${peer.index} ${peer.source}: ${peer.name}`, async () => {
      const outcome = await replay(peer);
      const wrong = contradictions(outcome);
      expect(violatedProperties(outcome)).toEqual([]);

      const own = deviations.filter(({ cases: indexes }) => indexes.includes(peer.index));
      const listed = own.flatMap(({ keys }) => keys).toSorted();
      const found = wrong.map(({ key }) => key).toSorted();
      const explained = wrong.map(({ key, answer }) => `${key} ${answer}`).join('\n');
      expect(found, `what does not hold:\n${explained}\nagainst what deviations.ts lists`).toEqual(listed);
      totals[
        own.length === 0 ? 'exact' : own.every(({ kind }) => kind === 'indices') ? 'properties' : 'deviations'
      ]++;
    });

  test('are complete, and every deviation names an existing case and a reason', () => {
    expect(cases).toHaveLength(197);
    for (const { cases: indexes, why } of deviations) {
      expect(why.length).toBeGreaterThan(40);
      for (const index of indexes) expect(cases?.[index]).toBeDefined();
    }
  });

  afterAll(() => {
    const { exact, properties, deviations: deviating } = totals;
    console.log(
      `peers' cases: ${exact} word for word, ${properties} by their properties, ${deviating} deviate on purpose`,
    );
  });
});
