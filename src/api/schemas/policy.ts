import { policySchema, type PolicyInput } from '../../policy/schema.js';
import { component } from './component.js';

export const policyExample: PolicyInput = { contextWindow: 128_000, trigger: { fraction: 0.8 } };

export const policy = component<PolicyInput>()('Policy', policySchema, {
  description: 'A policy as people write it: what is left out has its default; README has the table.',
  example: policyExample,
});
