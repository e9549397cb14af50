/** Endpoints about the process itself, for operators and their tools, without a token. */
import { z } from 'zod';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { failureTypes } from '../errors.js';
import type { Readiness } from '../process/readiness.js';
import { jsonMediaType, type AnswerDocument } from './operations/operation.js';
import { component } from '../contract/schema.js';
import type { ApiService } from './settings.js';

const health = component('Health', z.object({ status: z.literal('ok') }), {
  description: 'The process answers.',
  example: { status: 'ok' },
});

const serverFailure = z
  .object({ type: z.enum(failureTypes), message: z.string(), hint: z.string().optional() })
  .nullable();

type ReadinessReport = Readiness & { ready: boolean; ending: boolean };

const readiness = component(
  'Readiness',
  z.object({
    ready: z.boolean(),
    ending: z.boolean().describe('The process accepts no new requests; running requests finish.'),
    postgres: serverFailure.describe('Null: PostgreSQL answers and has the schema of this version.'),
    temporal: serverFailure.describe('Null: Temporal answers. Turns are stored without it.'),
  }) satisfies z.ZodType<ReadinessReport>,
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
    metrics,
    document,
    ending,
  }: {
    service: ApiService;
    metrics: (() => Promise<string>) | undefined;
    document: () => string;
    ending: () => boolean;
  },
): void {
  const json = (reply: FastifyReply, status: number, body: string) =>
    reply.code(status).header('content-type', jsonMediaType).header('cache-control', 'no-store').send(body);
  app.get('/healthz', (_request, reply) => json(reply, 200, '{"status":"ok"}'));
  const look = shared(() => service.readiness());
  app.get('/readyz', async (_request, reply) => {
    const found = await look();
    const ready = !ending() && found.postgres === null && found.temporal === null;
    const report: ReadinessReport = { ready, ending: ending(), ...found };
    return json(reply, ready ? 200 : 503, JSON.stringify(report));
  });
  app.get('/openapi.json', (_request, reply) => json(reply, 200, document()));
  if (metrics)
    app.get('/metrics', async (_request, reply) =>
      reply.header('content-type', metricsMediaType).send(await metrics()),
    );
}

/** Shares one check among concurrent requests: they need no token, so they must cost the servers little. */
function shared<T>(work: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | null = null;
  return () => (running ??= work().finally(() => (running = null)));
}
