/** Policies and pins in requests and answers. */
import { z } from 'zod';
import { type PolicyInput, policySchema } from '../policy/schema.js';
import { component } from './schema.js';

const example: PolicyInput = { contextWindow: 128_000, trigger: { fraction: 0.8 } };

export const policy = component('Policy', policySchema, {
  description:
    'A policy as people write it. Absent fields have their defaults; docs/policy.md has the table.',
  example,
});

export type SessionPolicy = z.infer<typeof sessionPolicy>;
export const sessionPolicy = component('SessionPolicy', z.object({ policy, policyVersion: z.int() }), {
  description: 'The policy as given at this level; `{}` for none.',
  example: { policy: example, policyVersion: 2 },
});

export type PolicyRequest = z.infer<typeof policyRequest>;
export const policyRequest = component('PolicyRequest', z.strictObject({ policy }), {
  description: 'Replaces the policy.',
  example: { policy: example },
});

export type PolicyVersion = z.infer<typeof policyVersion>;
export const policyVersion = component('PolicyVersion', z.object({ policyVersion: z.int() }), {
  description: 'The present version.',
  example: { policyVersion: 3 },
});

export type Pins = z.infer<typeof pins>;
export const pins = component('Pins', z.strictObject({ pins: policySchema.shape.pins.unwrap() }), {
  description: "The pins of the session's own policy: texts, `{seq}` of messages, `{pattern}`.",
  example: { pins: ['Never contact the customer by phone.', { seq: 1 }] },
});
