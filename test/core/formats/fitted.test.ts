/**
 * Contexts that were shortened to fit: the provider accepts them whatever was reduced, and messages that were not reduced are
 * unchanged.
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { fitting } from '../../../src/context/fit.js';
import { arrangeNative, shownUnits } from '../../../src/formats/native.js';
import { contextFormatOf } from '../../../src/formats/index.js';
import type { ContextFormat, FormatName } from '../../../src/conversation/format-names.js';
import type { Json, LoggedMessage } from '../../../src/conversation/message.js';
import { isFailure } from '../../../src/errors.js';
import { limitsOf } from '../../../src/limits/limits.js';
import { parsePolicy } from '../../../src/policy/schema.js';
import { resolvePolicy } from '../../../src/policy/layers.js';
import { atOnce } from '../../../src/steps.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { logged } from '../../support/formats.js';
import { sourceOf } from '../../support/histories.js';
import { anthropicHistories, geminiHistories } from '../../support/native-histories.js';
import { sessions } from '../../support/random-sessions.js';

const policy = resolvePolicy(parsePolicy({ contextWindow: 4_000, tokenizer: 'chars/4' }));
const runs = { numRuns: 150 };

function fittedUnits(log: LoggedMessage[], budget: number, format: ContextFormat) {
  try {
    const counter = counterFor('chars/4');
    const bySeq = new Map(log.map((message) => [message.seq, message]));
    const { items } = atOnce(
      fitting(sourceOf(log), policy, limitsOf(policy), counter, {
        budget,
        arrange: (view) => arrangeNative(view, bySeq, format, counter),
      }),
    );
    return shownUnits(items, bySeq, format);
  } catch (error) {
    if (isFailure(error, 'Budget.Unreachable')) return null;
    throw error;
  }
}

const budgets = fc.integer({ min: 50, max: 3_000 });

test.for([
  ['anthropic', anthropicHistories],
  ['gemini', geminiHistories],
] as const)('histories of %s', ([format, histories]) => {
  const arbitrary: fc.Arbitrary<Record<string, Json>[]> = histories;
  fc.assert(
    fc.property(arbitrary, budgets, (items, budget) => {
      const log = logged([items], format);
      for (const provider of ['anthropic', 'gemini'] as const) {
        const units = fittedUnits(log, budget, provider);
        if (!units) continue;
        expect(contextFormatOf(provider).violations(contextFormatOf(provider).render(units))).toEqual([]);
        const originals = units.flatMap(({ items: own }) => own ?? []);
        if (provider === format) expect(originals.length).toBeLessThanOrEqual(items.length);
        else expect(originals).toEqual([]);
      }
    }),
    runs,
  );
});

test.for(['anthropic', 'gemini'] as const)('sessions of chat messages, for %s', (provider) => {
  fc.assert(
    fc.property(sessions, budgets, (turns, budget) => {
      const format: FormatName = 'openai-chat';
      const log = logged(turns as unknown as Json[][], format);
      const units = fittedUnits(log, budget, provider);
      fc.pre(units !== null);
      expect(contextFormatOf(provider).violations(contextFormatOf(provider).render(units))).toEqual([]);
    }),
    runs,
  );
});
