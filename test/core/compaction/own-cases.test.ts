/**
 * The rules of compaction libraries as cases in the form of `cases/format.ts`. After every step of every case the context is
 * valid, replay is the log, the newest user message is shown, and every evicted message was read.
 */
import { describe, expect, test } from 'vitest';
import { isFailure } from '../../../src/errors.js';
import { policyOf } from '../../../src/policy/layers.js';
import { limitsOf } from '../../../src/limits/limits.js';
import { parsePolicy } from '../../../src/policy/schema.js';
import { cutCases } from '../../cases/cut.js';
import { failureCases } from '../../cases/failure.js';
import { injectionCases } from '../../cases/injection.js';
import { memoryCases } from '../../cases/memory.js';
import { play } from '../../cases/play.js';
import { reductionCases } from '../../cases/reductions.js';
import { triggerCases } from '../../cases/trigger.js';

describe.each([
  ['triggers', triggerCases],
  ['cuts and pairs', cutCases],
  ['failures', failureCases],
  ['planted content', injectionCases],
  ['memory and undo', memoryCases],
  ['reductions', reductionCases],
])('%s', (_family, cases) => {
  for (const own of cases)
    test(own.name, async () => {
      expect(await play(own)).toEqual([]);
    });
});

describe('configurations that cannot work are refused with the path of the field', () => {
  test.each([
    [{ trigger: { fraction: 0 } }, 'policy.trigger.fraction'],
    [{ trigger: { fraction: 1.2 } }, 'policy.trigger.fraction'],
    [{ trigger: { tokens: -1 } }, 'policy.trigger.tokens'],
    [{ trigger: { tokens: 12.5 } }, 'policy.trigger.tokens'],
    [{ trigger: { messages: '20' } }, 'policy.trigger.messages'],
    [{ trigger: { messages: true } }, 'policy.trigger.messages'],
    [{ trigger: { rounds: 3 } }, 'policy.trigger'],
    [{ trigger: [{ tokens: 9_000 }, {}] }, 'policy.trigger[1]'],
    [{ trigger: [] }, 'policy.trigger'],
    [{ keep: { messages: 0 } }, 'policy.keep.messages'],
    [{ keep: { fraction: -0.1 } }, 'policy.keep.fraction'],
    [{ keep: {} }, 'policy.keep'],
    [{ trigger: { messages: 4 } }, 'policy.trigger'],
    [{ trigger: { tokens: 9_000 }, keep: { tokens: 9_000 } }, 'policy.keep.tokens'],
    [{ contextWindow: 8_000, trigger: { tokens: 9_000 } }, 'policy.trigger'],
  ])('%j', (policy, path) => {
    try {
      limitsOf(policyOf({ session: parsePolicy(policy) }));
    } catch (error) {
      if (!isFailure(error, 'Input.Invalid')) throw error;
      expect(error.path).toContain(path);
      expect(error.hint ?? error.message).not.toBe('');
      return;
    }
    expect.unreachable('the configuration is accepted');
  });
});
