/** Endpoints about the process itself, for operators and their tools. */
import { z } from 'zod';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Scope } from '../contract/routes.js';
import { failureTypes } from '../errors.js';
import { withoutMessages } from '../process/readiness.js';
import { jsonMediaType, type AnswerDocument } from './operations/operation.js';
import { component } from '../contract/schema.js';
import type { ApiService } from './settings.js';

const health = component('Health', z.object({ status: z.literal('ok') }), {
  description: 'The process answers.',
  example: { status: 'ok' },
});

const serverFailure = z
  .object({
    type: z.enum(failureTypes),
    message: z.string().optional().describe('Only for callers on the machine of the API.'),
    hint: z.string().optional(),
  })
  .nullable();

const readiness = component(
  'Readiness',
  z.object({
    ready: z.boolean(),
    ending: z.boolean().describe('The process accepts no new requests; running requests finish.'),
    postgres: serverFailure.describe('Null: PostgreSQL answers and has the schema of this version.'),
    temporal: serverFailure.describe('Null: Temporal answers. Turns are stored without it.'),
  }),
  {
    description: 'Whether requests should be sent to this process.',
    example: { ready: true, ending: false, postgres: null, temporal: null },
  },
);

const metricsMediaType = 'text/plain; version=0.0.4; charset=utf-8';

interface ServiceOperation {
  path: string;
  id: string;
  summary: string;
  /** The scope that a caller from elsewhere needs; a caller on this machine needs none. Absent: open to all. */
  scope?: Scope;
  answers: Readonly<Record<number, AnswerDocument>>;
}

export const serviceOperations: readonly ServiceOperation[] = [
  {
    ...{ path: '/healthz', id: 'healthz', summary: 'Check whether the process answers' },
    answers: { 200: { description: 'The process answers.', content: { [jsonMediaType]: health } } },
  },
  {
    ...{
      path: '/readyz',
      id: 'readyz',
      summary: 'Check whether PostgreSQL, its schema and Temporal can be used',
      scope: 'admin' as const,
    },
    answers: {
      200: { description: 'PostgreSQL and Temporal can be used.', content: { [jsonMediaType]: readiness } },
      503: {
        description: 'PostgreSQL or Temporal cannot be used, or the process is shutting down.',
        content: { [jsonMediaType]: readiness },
      },
    },
  },
  {
    ...{ path: '/metrics', id: 'metrics', summary: "Get the metrics in Prometheus's text format" },
    scope: 'admin',
    answers: { 200: { description: 'The metrics.', content: { [metricsMediaType]: z.string() } } },
  },
  {
    ...{ path: '/openapi.json', id: 'openapi', summary: 'Get this document' },
    answers: {
      200: {
        description: 'OpenAPI 3.1.',
        content: { [jsonMediaType]: z.looseObject({ openapi: z.string() }) },
      },
    },
  },
];

export function addServiceRoutes(
  app: FastifyInstance,
  {
    service,
    isLocal,
    needScope,
    metrics,
    document,
    ending,
  }: {
    service: ApiService;
    isLocal: (request: FastifyRequest) => boolean;
    /** Throws unless the request has a token with the scope. */
    needScope: (request: FastifyRequest, scope: Scope) => Promise<void>;
    metrics: (() => Promise<string>) | undefined;
    document: () => string;
    ending: () => boolean;
  },
): void {
  const look = shared(() => service.readiness());
  const json = (reply: FastifyReply, status: number, body: string) =>
    reply.code(status).header('content-type', jsonMediaType).header('cache-control', 'no-store').send(body);
  const answers: Record<string, (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply>> = {
    healthz: async (_, reply) => json(reply, 200, '{"status":"ok"}'),
    readyz: async (request, reply) => {
      const found = await look();
      const ready = !ending() && found.postgres === null && found.temporal === null;
      const state = { ready, ending: ending(), ...found };
      return json(
        reply,
        ready ? 200 : 503,
        JSON.stringify(isLocal(request) ? state : withoutMessages(state)),
      );
    },
    openapi: async (_, reply) => json(reply, 200, document()),
    ...(metrics && {
      metrics: async (_, reply) => reply.header('content-type', metricsMediaType).send(await metrics()),
    }),
  };
  for (const { path, id, scope } of serviceOperations) {
    const handler = answers[id];
    if (handler === undefined) continue;
    const onRequest = async (request: FastifyRequest) => {
      if (scope !== undefined && !isLocal(request)) await needScope(request, scope);
    };
    app.route({ method: 'GET', url: path, onRequest, handler });
  }
}

/** Shares one check among concurrent requests: a probe must cost the servers little. */
function shared<T>(work: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | null = null;
  return () => (running ??= work().finally(() => (running = null)));
}
