import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { PalimpsestClient } from '../../contract/client.js';
import { flagInQuery, idText, wholeInQuery } from '../schemas/component.js';
import {
  accepted,
  compactionAnswer,
  erased,
  pinsBody,
  policyBody,
  policyVersion,
  sessionList,
  sessionPolicy,
} from '../schemas/sessions.js';
import { status } from '../schemas/status.js';
import { jsonMediaType, ofSession, operation, Reply } from './operation.js';

const tag = 'Sessions';
const failures = ['Store.SessionNotFound'] as const;

export const sessions = [
  operation({
    ...{ method: 'GET', path: '/v1/sessions', id: 'sessions', tag, lane: 'heavy' },
    summary: 'List sessions',
    query: z.strictObject({
      after: idText.optional().describe('`next` of the page before.'),
      limit: wholeInQuery(1, 1_000).optional().describe('Sessions at most. Default 100.'),
      prefix: idText.optional().describe('Ids that begin with this.'),
      failed: flagInQuery().optional().describe('Only sessions whose latest attempt failed.'),
    }),
    answer: sessionList,
    handle: ({ client, query }) => client.sessions(query),
  }),
  operation({
    ...{ method: 'DELETE', path: '/v1/sessions/{session}', id: 'erase', tag, lane: 'heavy' },
    summary: 'Delete a session and everything stored of it, for good',
    description:
      'PostgreSQL forgets it at once, Temporal within about a minute; what Temporal could not be told to delete is in ' +
      '`remaining` and deleted later. Repeat the request after any doubt.',
    params: ofSession,
    query: z.strictObject({
      forks: flagInQuery().optional().describe('Its forks as well, and theirs. Default `false`.'),
    }),
    answer: erased,
    failures: [...failures, 'Temporal.Unavailable'],
    handle: ({ client, params, query }) => client.erase({ ...params, ...query }),
  }),
  operation({
    ...{ method: 'GET', path: '/v1/sessions/{session}/status', id: 'status', tag },
    summary: 'Sizes, effective policy and what the session is doing',
    params: ofSession,
    answer: status,
    failures,
    handle: ({ client, params }) => client.status(params),
  }),
  operation({
    ...{ method: 'GET', path: '/v1/sessions/{session}/settled', id: 'settled', tag },
    summary: 'Wait until nothing is in flight',
    params: ofSession,
    query: z.strictObject({
      timeout: wholeInQuery(0, 600_000).optional().describe('Milliseconds to wait at most. Default 60,000.'),
    }),
    answer: null,
    failures: [...failures, 'Temporal.Unavailable'],
    waits: () => true,
    handle: ({ client, params, query: { timeout } }) =>
      client.settled({ ...params, ...(timeout === undefined ? {} : { timeoutMs: timeout }) }),
  }),
  operation({
    ...{ method: 'POST', path: '/v1/sessions/{session}/close', id: 'closeSession', tag },
    summary: 'No further turns are expected',
    description: 'Unanswered calls count as dead. A later turn opens the session again.',
    params: ofSession,
    answer: null,
    failures: [...failures, 'Temporal.Unavailable'],
    handle: ({ client, params }) => client.closeSession(params),
  }),
  operation({
    ...{ method: 'POST', path: '/v1/sessions/{session}/pause', id: 'pause', tag },
    summary: 'Begin no compaction until `resume`',
    description: 'Turns are stored and contexts fit as ever.',
    params: ofSession,
    answer: null,
    failures: [...failures, 'Temporal.Unavailable'],
    handle: ({ client, params }) => client.pause(params),
  }),
  operation({
    ...{ method: 'POST', path: '/v1/sessions/{session}/resume', id: 'resume', tag },
    summary: 'Compactions may begin again',
    params: ofSession,
    answer: null,
    failures: [...failures, 'Temporal.Unavailable'],
    handle: ({ client, params }) => client.resume(params),
  }),
  compacting('compact', 'Compact now, whatever the size'),
  compacting('resummarize', 'Write anew what the fallback wrote while no model answered'),
];

/** A compaction that is asked for: waited for, or not. */
function compacting(name: 'compact' | 'resummarize', summary: string) {
  return operation({
    ...{ method: 'POST', path: `/v1/sessions/{session}/${name}`, id: name, tag, summary, abandon: true },
    description:
      'A compaction that is running already is joined. Answers `null` where there is nothing to do or the result ' +
      'would not be smaller.',
    params: ofSession,
    query: z.strictObject({
      wait: z
        .union([flagInQuery(), wholeInQuery(1, 600_000)])
        .optional()
        .describe(
          '`false`: answer once it is accepted; a number: after so many milliseconds at most. Default `true`.',
        ),
    }),
    answer: compactionAnswer,
    answers: {
      202: {
        description: 'It is accepted and goes on.',
        content: { [jsonMediaType]: accepted },
        headers: { Location: 'The status of the session.' },
      },
    },
    failures: [
      ...failures,
      ...(['Temporal.Unavailable', 'Llm.RateLimited', 'Llm.Unavailable', 'Llm.Rejected'] as const),
    ],
    waits: ({ wait }) => wait !== false,
    handle: async ({ client, params, query: { wait = true } }) => {
      if (wait === true) return client[name](params);
      const path = `/v1/sessions/${encodeURIComponent(params.session)}/status`;
      const goesOn = new Reply(202, { status: path }, { location: path });
      if (wait !== false) return within(wait, client[name](params), goesOn);
      await client[name]({ ...params, wait: false });
      return goesOn;
    },
  });
}

type Outcome = Awaited<ReturnType<PalimpsestClient['compact']>>;

/** The outcome if it comes in time. What comes later is in the database, failures are in the status. */
async function within(ms: number, outcome: Promise<Outcome>, otherwise: Reply): Promise<Outcome | Reply> {
  const waiting = new AbortController();
  try {
    return await Promise.race([outcome, sleep(ms, otherwise, { signal: waiting.signal })]);
  } finally {
    waiting.abort();
    outcome.catch(() => undefined);
  }
}

const policyTag = 'Policies';

export const policies = [
  operation({
    ...{ method: 'GET', path: '/v1/policy', id: 'tenantPolicy', tag: policyTag },
    summary: 'The policy of the tenant',
    answer: sessionPolicy,
    handle: ({ client }) => client.tenantPolicy(),
  }),
  operation({
    ...{ method: 'PUT', path: '/v1/policy', id: 'configureTenant', tag: policyTag },
    summary: 'Replace the policy of the tenant',
    description:
      'Of all its sessions, as far as they say nothing themselves; each takes it over when next used.',
    body: policyBody,
    answer: policyVersion,
    handle: ({ client, body }) => client.configureTenant(body),
  }),
  operation({
    ...{ method: 'GET', path: '/v1/sessions/{session}/policy', id: 'policy', tag: policyTag },
    summary: 'The policy of a session, as given',
    description: 'What is in force, with its sources, is in the status.',
    params: ofSession,
    answer: sessionPolicy,
    failures,
    handle: ({ client, params }) => client.policy(params),
  }),
  operation({
    ...{ method: 'PUT', path: '/v1/sessions/{session}/policy', id: 'configure', tag: policyTag },
    summary: 'Replace the policy of a session',
    params: ofSession,
    body: policyBody,
    answer: policyVersion,
    failures: [...failures, 'Temporal.Unavailable'],
    handle: ({ client, params, body }) => client.configure({ ...params, ...body }),
  }),
  operation({
    ...{ method: 'GET', path: '/v1/sessions/{session}/pins', id: 'pins', tag: policyTag },
    summary: 'What is carried word for word',
    params: ofSession,
    answer: pinsBody,
    failures,
    handle: ({ client, params }) => client.pins(params),
  }),
  operation({
    ...{ method: 'PUT', path: '/v1/sessions/{session}/pins', id: 'pin', tag: policyTag },
    summary: "Replace the pins of the session's own policy",
    params: ofSession,
    body: pinsBody,
    answer: policyVersion,
    failures: [...failures, 'Temporal.Unavailable'],
    handle: ({ client, params, body }) => client.pin({ ...params, ...body }),
  }),
];
