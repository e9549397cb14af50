import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { PalimpsestClient } from '../../contract/client.js';
import { accepted, compactionAnswer } from '../../contract/compactions.js';
import {
  eraseMessagesRequest,
  findMessagesRequest,
  foundMessages,
  messagesErased,
} from '../../contract/erasing.js';
import { pins, policyRequest, policyVersion, sessionPolicy } from '../../contract/policies.js';
import { erased, eraseRequest, listRequest, sessionList, status } from '../../contract/sessions.js';
import { flag, inQuery, wholeNumber } from './query.js';
import { jsonMediaType, ofSession, operation, Reply } from './operation.js';

const tag = 'Sessions';
const failures = ['Store.SessionNotFound'] as const;

export const sessions = [
  operation({
    id: 'sessions',
    tag,
    lane: 'heavy',
    summary: 'List sessions',
    query: inQuery(listRequest),
    answer: sessionList,
    handle: ({ client, query }) => client.sessions(query),
  }),
  operation({
    id: 'erase',
    tag,
    lane: 'heavy',
    summary: 'Delete a session and all its data permanently',
    description:
      'PostgreSQL deletes it at once, Temporal within about a minute. `remaining` counts the executions whose deletion ' +
      'Temporal has not accepted; they are deleted later. If you do not know whether the request arrived, repeat it.',
    params: ofSession,
    query: inQuery(eraseRequest),
    answer: erased,
    failures: [...failures, 'Temporal.Unavailable'],
    handle: ({ client, params, query }) => client.erase({ ...params, ...query }),
  }),
  operation({
    id: 'eraseMessages',
    tag,
    lane: 'heavy',
    summary: 'Erase messages and everything made of them',
    description:
      'A tombstone replaces each message; its role, position and links stay. Texts of every generation that may repeat a ' +
      'message are written again by rule, in the same transaction. A repeated request changes nothing more.',
    params: ofSession,
    longBody: true,
    body: eraseMessagesRequest,
    answer: messagesErased,
    failures: [...failures, 'Temporal.Unavailable'],
    handle: ({ client, params, body }) => client.eraseMessages({ ...params, ...body }),
  }),
  operation({
    id: 'findMessages',
    tag,
    lane: 'heavy',
    summary: 'Find the messages that contain a text, to erase them',
    params: ofSession,
    body: findMessagesRequest,
    answer: foundMessages,
    failures,
    handle: ({ client, params, body }) => client.findMessages({ ...params, ...body }),
  }),
  operation({
    id: 'status',
    tag,
    summary: 'Get sizes, effective policy and work in progress of the session',
    params: ofSession,
    answer: status,
    failures,
    handle: ({ client, params }) => client.status(params),
  }),
  operation({
    id: 'settled',
    tag,
    summary: 'Wait until no work is in progress',
    params: ofSession,
    query: z.strictObject({
      timeout: wholeNumber(z.int().min(0).max(600_000))
        .optional()
        .describe('Maximum milliseconds to wait. Default 60,000.'),
    }),
    answer: null,
    failures: [...failures, 'Temporal.Unavailable'],
    waits: () => true,
    handle: ({ client, params, query: { timeout } }) =>
      client.settled({ ...params, ...(timeout === undefined ? {} : { timeoutMs: timeout }) }),
  }),
  operation({
    id: 'closeSession',
    tag,
    summary: 'Record that no further turns are expected',
    description: 'Calls without a result count as abandoned. A later turn opens the session again.',
    params: ofSession,
    answer: null,
    failures: [...failures, 'Temporal.Unavailable'],
    handle: ({ client, params }) => client.closeSession(params),
  }),
  operation({
    id: 'pause',
    tag,
    summary: 'Begin no compaction until `resume`',
    description: 'Turns are still stored and contexts still fit the budget.',
    params: ofSession,
    answer: null,
    failures: [...failures, 'Temporal.Unavailable'],
    handle: ({ client, params }) => client.pause(params),
  }),
  operation({
    id: 'resume',
    tag,
    summary: 'Allow compactions again',
    params: ofSession,
    answer: null,
    failures: [...failures, 'Temporal.Unavailable'],
    handle: ({ client, params }) => client.resume(params),
  }),
  compacting('compact', 'Compact now, whatever the size'),
  compacting('resummarize', 'Let a model rewrite the summaries that the fallback wrote'),
];

/** A requested compaction, with or without waiting for its end. */
function compacting(name: 'compact' | 'resummarize', summary: string) {
  return operation({
    id: name,
    tag,
    summary,
    abandon: true,
    description:
      'Joins a compaction that is running already. Answers `null` if there is nothing to do or the result was ' +
      'refused (not smaller, or without a pin).',
    params: ofSession,
    query: z.strictObject({
      wait: z
        .union([flag(z.boolean()), wholeNumber(z.int().min(1).max(600_000))])
        .optional()
        .describe(
          '`false`: answer once it is accepted. A number: wait at most this many milliseconds. Default `true`.',
        ),
    }),
    answer: compactionAnswer,
    answers: {
      202: {
        description: 'The compaction is accepted and continues.',
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

/** Returns the outcome if the compaction ends in time. A later outcome is in the database, and failures are in the status. */
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
    id: 'tenantPolicy',
    tag: policyTag,
    summary: 'Get the policy of the tenant',
    answer: sessionPolicy,
    handle: ({ client }) => client.tenantPolicy(),
  }),
  operation({
    id: 'configureTenant',
    tag: policyTag,
    summary: 'Replace the policy of the tenant',
    description:
      'Each session of the tenant follows it in the fields that it does not set itself, from its next use on.',
    longBody: true,
    body: policyRequest,
    answer: policyVersion,
    failures: ['Tenant.BeyondLimit'],
    handle: ({ client, body }) => client.configureTenant(body),
  }),
  operation({
    id: 'policy',
    tag: policyTag,
    summary: 'Get the policy of a session as it was given',
    description: 'The status has the effective policy with its sources.',
    params: ofSession,
    answer: sessionPolicy,
    failures,
    handle: ({ client, params }) => client.policy(params),
  }),
  operation({
    id: 'configure',
    tag: policyTag,
    summary: 'Replace the policy of a session',
    params: ofSession,
    longBody: true,
    body: policyRequest,
    answer: policyVersion,
    failures: [...failures, 'Temporal.Unavailable', 'Tenant.BeyondLimit'],
    handle: ({ client, params, body }) => client.configure({ ...params, ...body }),
  }),
  operation({
    id: 'pins',
    tag: policyTag,
    summary: 'List the pins of the session',
    params: ofSession,
    answer: pins,
    failures,
    handle: ({ client, params }) => client.pins(params),
  }),
  operation({
    id: 'pin',
    tag: policyTag,
    summary: "Replace the pins of the session's own policy",
    params: ofSession,
    longBody: true,
    body: pins,
    answer: policyVersion,
    failures: [...failures, 'Temporal.Unavailable', 'Tenant.BeyondLimit'],
    handle: ({ client, params, body }) => client.pin({ ...params, ...body }),
  }),
];
