/**
 * Temporal fails in every possible way at every operation that calls it: a stored turn is reported as stored, any other call
 * fails with a type that says whether to retry, and the API's log has code and message.
 */
import { randomUUID } from 'node:crypto';
import {
  ApplicationFailure,
  CancelledFailure,
  NamespaceNotFoundError,
  RetryState,
  TerminatedFailure,
  TimeoutFailure,
  TimeoutType,
} from '@temporalio/common';
import {
  QueryRejectedError,
  ServiceError,
  WorkflowFailedError,
  WorkflowNotFoundError,
  WorkflowUpdateFailedError,
  WorkflowUpdateRPCTimeoutOrCancelledError,
} from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type RunningApi, startApi } from '../../../src/api/server.js';
import { PalimpsestError } from '../../../src/errors.js';
import { createLogger } from '../../../src/process/logging.js';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import { typed } from '../../../src/temporal/calls.js';
import { connectClient } from '../../../src/temporal/connection.js';
import { SessionWorkflows } from '../../../src/temporal/session-workflows.js';
import { ask, digestOf, type Answered, type Asked } from '../../support/api.js';
import { FaultyWay, multiOperationFailure, type Fault } from '../../support/faulty-way.js';
import { startStack, type Stack } from '../../support/stack.js';
import { temporalAddress } from '../../support/temporal.js';

describe('an error of the client of Temporal', () => {
  const grpc = (code: number, details: string) =>
    Object.assign(new Error(`${code} X: ${details}`), { code, details });
  const circular = new Error('turns round');
  circular.cause = circular;
  const errors: [string, unknown, { code: string; message: string }][] = [
    [
      'raw gRPC',
      grpc(14, 'No connection established'),
      { code: 'UNAVAILABLE', message: 'No connection established' },
    ],
    ['gRPC without details', grpc(4, ''), { code: 'DEADLINE_EXCEEDED', message: '4 X: ' }],
    [
      'gRPC wrapped by the SDK',
      new ServiceError('Failed to signalWithStart Workflow', { cause: grpc(13, 'broken') }),
      { code: 'INTERNAL', message: 'broken' },
    ],
    [
      'a TypeError inside the SDK',
      new ServiceError('Unexpected error while making gRPC request', {
        cause: new TypeError('x is not a function'),
      }),
      { code: 'TypeError', message: 'x is not a function' },
    ],
    ['a bare TypeError', new TypeError("reading 'stage'"), { code: 'TypeError', message: "reading 'stage'" }],
    [
      'a system error',
      Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:7233'), { code: 'ECONNREFUSED' }),
      { code: 'ECONNREFUSED', message: 'nothing listens at 127.0.0.1:7233' },
    ],
    [
      'a closed channel',
      new Error('Channel has been shut down'),
      { code: 'Error', message: 'Channel has been shut down' },
    ],
    [
      'a poll that timed out',
      new WorkflowUpdateRPCTimeoutOrCancelledError('took too long', { cause: grpc(1, 'cancelled') }),
      { code: 'CANCELLED', message: 'cancelled' },
    ],
    [
      'a query nobody may ask',
      new QueryRejectedError(2),
      { code: 'QueryRejectedError', message: 'Query rejected' },
    ],
    [
      'no such namespace',
      new NamespaceNotFoundError('nowhere'),
      { code: 'NamespaceNotFoundError', message: "Namespace not found: 'nowhere'" },
    ],
    ['a text', 'gone', { code: 'UNKNOWN', message: 'gone' }],
    ['nothing at all', undefined, { code: 'UNKNOWN', message: 'undefined' }],
    ['a cause that is itself', circular, { code: 'Error', message: 'turns round' }],
    ['a long text', new Error('x'.repeat(10_000)), { code: 'Error', message: `${'x'.repeat(300)}…` }],
  ];
  test.each(errors)(
    'is Temporal.Unavailable with code and message: %s',
    async (_, error, { code, message }) => {
      const failure = await typed(() => Promise.reject(error)).catch((thrown: unknown) => thrown);
      expect(failure).toBeInstanceOf(PalimpsestError);
      expect(failure).toMatchObject({
        ...{ type: 'Temporal.Unavailable', details: { code }, hint: expect.any(String) as string },
        message: `Temporal does not answer: ${message}`,
        ...(error === undefined ? {} : { cause: error }),
      });
    },
  );

  const update = (cause: Error) => new WorkflowUpdateFailedError('Workflow Update failed', cause);
  const ends: [string, Error, RegExp][] = [
    ['cancelled', update(new CancelledFailure('by hand')), /cancelled in Temporal/],
    ['terminated', update(new TerminatedFailure('by hand')), /terminated in Temporal/],
    [
      'out of time',
      update(new TimeoutFailure('late', undefined, TimeoutType.SCHEDULE_TO_START)),
      /timed out before/,
    ],
    ['gone', new WorkflowNotFoundError('none', 'session/a/b', undefined), /has ended/],
    [
      'completed before it answered',
      update(ApplicationFailure.create({ type: 'AcceptedUpdateCompletedWorkflow' })),
      /ended before it answered/,
    ],
  ];
  test.each(ends)('of a workflow that was %s says so', async (_, error, says) => {
    await expect(typed(() => Promise.reject(error))).rejects.toMatchObject({
      type: 'Temporal.Unavailable',
      message: expect.stringMatching(says) as string,
    });
  });

  test('keeps the type that a workflow failed with, and a defect inside a workflow stays a defect', async () => {
    const typedOne = update(ApplicationFailure.nonRetryable('no such key — correct it', 'Llm.Rejected'));
    await expect(typed(() => Promise.reject(typedOne))).rejects.toMatchObject({
      ...{ type: 'Llm.Rejected', message: 'no such key', hint: 'correct it' },
    });
    for (const defect of [
      update(ApplicationFailure.create({ type: 'TypeError', message: 'x is not a function' })),
      new WorkflowFailedError('failed', new Error('x'), RetryState.NON_RETRYABLE_FAILURE),
    ])
      await expect(typed(() => Promise.reject(defect))).rejects.toBe(defect);
    const own = new PalimpsestError('Input.Invalid', 'no such id');
    await expect(typed(() => Promise.reject(own))).rejects.toBe(own);
  });
});

test('a call that the SDK would repeat ends when its connection is closed', async () => {
  const way = new FaultyWay(temporalAddress());
  const workflows = new SessionWorkflows(await connectClient({ address: await way.open() }), 'nobody');
  let calls = 0;
  way.fault = (method) =>
    method === 'DescribeWorkflowExecution' ? (calls++, { code: 14, message: 'no connection' }) : null;
  const status = workflows.status({ tenant: 'nobody', session: 's' });
  await expect.poll(() => calls).toBeGreaterThan(2);
  await workflows.close();
  expect(await status).toBe('unknown');
  way.close();
});

describe('over HTTP', () => {
  let stack: Stack;
  let way: FaultyWay;
  let palimpsest: Palimpsest;
  let api: RunningApi;
  let written = '';
  beforeAll(async () => {
    stack = await startStack({ worker: false });
    way = new FaultyWay(stack.temporal.address);
    const { databaseUrl, queuePrefix } = stack;
    const log = createLogger({ level: 'info', destination: { write: (line) => void (written += line) } });
    palimpsest = await Palimpsest.connect({
      ...{ databaseUrl, queuePrefix, tenant: queuePrefix, log },
      policy: { file: { signal: 'always' } },
      temporal: { address: await way.open() },
    });
    api = await startApi(
      { port: 0, tokens: [{ tenant: queuePrefix, sha256: digestOf('t') }], log },
      palimpsest,
    );
  });
  afterAll(async () => {
    await api.close();
    await palimpsest.close();
    way.close();
    await stack.stop();
  });

  const call = (path: string, asked?: Asked): Promise<Answered> =>
    ask(api.address, path, { token: 't', ...asked });
  const secret = `secret-${randomUUID()}`;
  const turn = (turnId: string) => ({ body: { turnId, messages: [{ role: 'user', content: secret }] } });
  const post: Asked = { method: 'POST' };

  const faults: [string, Fault, RegExp][] = [
    ['UNAVAILABLE', { code: 14, message: 'no connection' }, /UNAVAILABLE|DEADLINE_EXCEEDED/],
    ['INTERNAL', { code: 13, message: 'a shard moved' }, /INTERNAL/],
    [
      'RESOURCE_EXHAUSTED',
      { code: 8, message: 'namespace rate limit exceeded' },
      /RESOURCE_EXHAUSTED|DEADLINE_EXCEEDED/,
    ],
    ['PERMISSION_DENIED', { code: 7, message: 'not yours' }, /PERMISSION_DENIED/],
    ['INVALID_ARGUMENT', { code: 3, message: 'no mapping for search attribute' }, /INVALID_ARGUMENT/],
    [
      'a failure of one of two operations, which the SDK throws unwrapped',
      { code: 13, message: 'both failed', details: multiOperationFailure(13, 'shard status unknown') },
      /INTERNAL/,
    ],
    ['an answer that is no message', 'garbage', /RangeError/],
    ['an empty answer, at which the SDK trips over itself', 'empty', /TypeError|UNKNOWN/],
    ['a call broken off', 'reset', /INTERNAL|UNAVAILABLE|CANCELLED|DEADLINE_EXCEEDED/],
    ['a connection broken off', 'hang up', /UNAVAILABLE|CANCELLED|DEADLINE_EXCEEDED/],
    ['a connection broken off after the deed', 'hang up after', /UNAVAILABLE|CANCELLED|DEADLINE_EXCEEDED/],
  ];

  test.each(faults)('%s', async (name, fault, code) => {
    const session = `s-${randomUUID()}`;
    const job = `job-${randomUUID()}`;
    way.fault = () => null;
    expect((await call(`/v1/sessions/${session}/turns`, turn('1'))).json).toMatchObject({ signalled: true });
    way.fault = (method) => (/^(?:GetSystemInfo|DescribeNamespace)$/.test(method) ? null : fault);
    written = '';
    const empty = fault === 'empty';

    const [appended, status, context, ...others] = await Promise.all([
      call(`/v1/sessions/${session}/turns`, turn('2')),
      call(`/v1/sessions/${session}/status`),
      call(`/v1/sessions/${session}/context?wait=100`),
      call(`/v1/sessions/${session}/compact?wait=false`, post),
      call(`/v1/sessions/${session}/resummarize`, post),
      call(`/v1/sessions/${session}/pause`, post),
      call(`/v1/sessions/${session}/resume`, post),
      call(`/v1/sessions/${session}/policy`, { method: 'PUT', body: { policy: {} } }),
      call(`/v1/sessions/${session}/settled?timeout=100`),
      call(`/v1/sessions/${session}/close`, post),
      call('/v1/backfills', { body: { job, select: { prefix: 'nobody' } } }),
    ]);
    expect(appended).toMatchObject({ status: 200, json: { signalled: empty, fromSeq: 2 } });
    expect(status).toMatchObject({ status: 200, json: { session } });
    expect(context.status).toBe(200);
    for (const [index, other] of others.entries()) {
      const message = `${name}, operation ${index}: ${other.text}`;
      // An empty answer is enough for calls that need none.
      if (empty && other.status < 300) continue;
      expect(other.status, message).toBe(503);
      expect(other.headers.get('retry-after'), message).toBe('1');
      expect(other.json, message).toMatchObject({
        failure: 'Temporal.Unavailable',
        hint: expect.any(String),
      });
    }
    for (const action of ['pause', 'resume', 'cancel']) {
      const steered = await call(`/v1/backfills/${job}/${action}`, post);
      expect(steered, `${name}, ${action}: ${steered.text}`).toMatchObject({
        ...{ status: 503, json: { failure: 'Temporal.Unavailable' } },
      });
    }

    const lines = written
      .split('\n')
      .flatMap((line) => (line ? [JSON.parse(line) as Record<string, unknown>] : []));
    const told = lines.filter(({ level, code: said }) => level === 'warn' && said !== undefined);
    expect(told.length).toBeGreaterThan(0);
    for (const { code: said } of told) expect(said).toMatch(code);
    if (!empty) expect(lines.map(({ msg }) => msg)).toContain('a stored turn could not be signalled');
    expect(written).not.toContain(secret);
    expect(written).not.toContain('unexpected error');

    way.fault = () => null;
    const again = await call(`/v1/sessions/${session}/turns`, turn('2'));
    expect(again.json).toMatchObject({ repeated: true, signalled: true });
  });
});
