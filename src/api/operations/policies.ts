import { ofSession, operation } from './operation.js';
import { pinsBody, policyBody, policyVersion, sessionPolicy } from '../schemas/sessions.js';

const tag = 'Policies';
const failures = ['Store.SessionNotFound'] as const;

export const policies = [
  operation({
    ...{ method: 'GET', path: '/v1/policy', id: 'tenantPolicy', tag },
    summary: 'The policy of the tenant',
    answer: sessionPolicy,
    handle: ({ client }) => client.tenantPolicy(),
  }),
  operation({
    ...{ method: 'PUT', path: '/v1/policy', id: 'configureTenant', tag },
    summary: 'Replace the policy of the tenant',
    description:
      'Of all its sessions, as far as they say nothing themselves; each takes it over when next used.',
    body: policyBody,
    answer: policyVersion,
    handle: ({ client, body }) => client.configureTenant(body),
  }),
  operation({
    ...{ method: 'GET', path: '/v1/sessions/{session}/policy', id: 'policy', tag },
    summary: 'The policy of a session, as given',
    description: 'What is in force, with its sources, is in the status.',
    params: ofSession,
    answer: sessionPolicy,
    failures,
    handle: ({ client, params }) => client.policy(params),
  }),
  operation({
    ...{ method: 'PUT', path: '/v1/sessions/{session}/policy', id: 'configure', tag },
    summary: 'Replace the policy of a session',
    params: ofSession,
    body: policyBody,
    answer: policyVersion,
    failures: [...failures, 'Temporal.Unavailable'],
    handle: ({ client, params, body }) => client.configure({ ...params, ...body }),
  }),
  operation({
    ...{ method: 'GET', path: '/v1/sessions/{session}/pins', id: 'pins', tag },
    summary: 'What is carried word for word',
    params: ofSession,
    answer: pinsBody,
    failures,
    handle: ({ client, params }) => client.pins(params),
  }),
  operation({
    ...{ method: 'PUT', path: '/v1/sessions/{session}/pins', id: 'pin', tag },
    summary: "Replace the pins of the session's own policy",
    params: ofSession,
    body: pinsBody,
    answer: policyVersion,
    failures: [...failures, 'Temporal.Unavailable'],
    handle: ({ client, params, body }) => client.pin({ ...params, ...body }),
  }),
];
