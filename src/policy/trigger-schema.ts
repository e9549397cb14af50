import { z } from 'zod';
import { problemOfPattern } from '../conversation/pattern.js';
import { LONGEST_PATTERN } from '../conversation/pattern-syntax.js';
import { milliseconds, positive, tokens } from './summary-schema.js';

const share = z.number().gt(0).max(1);

const clause = z
  .strictObject({
    tokens: tokens.optional().describe('Tokens of overhead + context.'),
    messages: positive.optional().describe('Messages of the context.'),
    fraction: share
      .optional()
      .describe('Share of the window: min(fraction · window, 0.9 · (window − reservedOutputTokens)) tokens.'),
  })
  .refine((given) => Object.values(given).some((value) => value !== undefined), {
    error: 'names no size',
    params: { hint: 'Give at least one of tokens, messages, fraction.' },
  });

const economicClause = z.strictObject({
  economic: z
    .literal(true)
    .describe(
      'The cost-optimal size, from `prices` and the mean turn; at most the threshold of fraction 0.85.',
    ),
});

const idleClause = z.strictObject({
  idle: milliseconds
    .min(1_000)
    .describe(
      "Quiet milliseconds after which the provider's cache is cold: compact then, where reading the context anew costs more than summarizing it.",
    ),
});

/** One clause, or a list of them. */
export const triggerSchema = z.union([
  clause,
  economicClause,
  idleClause,
  z.array(z.union([clause, economicClause, idleClause])).max(20),
]);

/** A regular expression that can be matched in linear time. */
export const patternSchema = z
  .string()
  .min(1)
  .max(LONGEST_PATTERN)
  .superRefine((pattern, context) => {
    const found = problemOfPattern(pattern);
    if (found) context.addIssue({ code: 'custom', message: found.problem, params: { hint: found.hint } });
  });

export const pinSchema = z.union([
  z.string().min(1),
  z.strictObject({
    // As far as the log can count.
    seq: positive.max(2 ** 31 - 1).describe('A message of the log, carried word for word.'),
  }),
  z.strictObject({
    pattern: patternSchema.describe('Matches in user and system messages are carried word for word.'),
  }),
]);

/** `policy.keep`. */
export const ceilingsSchema = z
  .strictObject({
    messages: positive.optional().describe('Newest messages.'),
    tokens: tokens.optional().describe('Tokens of the newest messages.'),
    fraction: z.number().gt(0).lt(1).optional().describe('The same as a share of the window.'),
  })
  .refine((given) => Object.values(given).some((value) => value !== undefined), {
    error: 'names no ceiling',
    params: { hint: 'Give at least one of messages, tokens, fraction, or leave keep out for the default.' },
  });

/** A size that triggers; all that is given must be reached. */
export type TriggerClause = z.infer<typeof clause>;
export type KeepCeilings = z.infer<typeof ceilingsSchema>;
export type Pin = z.infer<typeof pinSchema>;
