/** Requests made from the OpenAPI document, changed, against a running API. */
import { readFileSync } from 'node:fs';
import { Agent, request as send } from 'node:http';
import { connect } from 'node:net';
import { failureTypes } from '../../src/errors.js';
import type { Json } from '../../src/conversation/message.js';
import type { Random } from '../chaos/random.js';
import { dialogue, smallPolicy } from '../support/dialogue.js';
import { document } from '../support/openapi.js';
import { bytesFor, mutated, mutatedText, oddText, oddTexts, randomFor } from './mutate.js';
import type { Finding } from './parsers.js';

interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
}

interface Described {
  id: string;
  method: string;
  path: string;
  parameters: Parameter[];
  /** A valid body; undefined for an operation without one. */
  body: Json | undefined;
}

const { schemas } = document.components as { schemas: Record<string, { examples?: Json[]; example?: Json }> };

const exampleOf = (content: Record<string, { schema: { $ref?: string } }>): Json => {
  const name = content['application/json']?.schema.$ref?.split('/').at(-1) ?? '';
  const { examples = [], example = examples[0] ?? null } = schemas[name] ?? {};
  return example;
};

const described: Described[] = Object.entries(
  document.paths as Record<string, Record<string, object>>,
).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => {
    const { operationId, parameters, requestBody } = operation as {
      operationId: string;
      parameters?: Parameter[];
      requestBody?: { content: Record<string, { schema: { $ref?: string } }> };
    };
    return {
      ...{ id: operationId, method: method.toUpperCase(), path },
      parameters: parameters ?? [],
      body: requestBody && exampleOf(requestBody.content),
    };
  }),
);

/** Erasing, and work on many sessions, are a small part of the requests: the others would find nothing to read. */
const rarely: ReadonlySet<string> = new Set(['erase', 'startBackfill', 'retryBackfill', 'configureTenant']);

const failuresDocument = readFileSync(new URL('../../docs/failures.md', import.meta.url), 'utf8');
const documented = new Set([...failuresDocument.matchAll(/^\| `([A-Za-z.]+)` \|/gm)].map(([, type]) => type));

const sessionNames = Array.from({ length: 24 }, (_, index) => `fuzz-${index}`);
const jobs = ['fuzz-job-1', 'fuzz-job-2'];
const parameterValues: Readonly<Record<string, readonly string[]>> = {
  ...{
    format: ['openai-chat', 'anthropic', 'gemini'],
    budget: ['4000'],
    wait: ['50', 'true', 'false'],
    limit: ['5', '1000'],
  },
  ...{
    after: ['fuzz-1'],
    prefix: ['fuzz'],
    failed: ['true'],
    forks: ['true'],
    timeout: ['50'],
    part: ['1', '2'],
  },
  ...{
    fromSeq: ['1', '5'],
    maxCharacters: ['100'],
    callId: ['c1'],
    seq: ['1', '3'],
    offset: ['0'],
    state: ['failed'],
  },
  ...{
    id: ['6f0d3c0e-6a3d-4d0e-9d1c-0f8f1f6f3c11'],
    'Idempotency-Key': ['k-1'],
    'If-None-Match': ['"1"', '*'],
  },
};

interface Request {
  operation: string;
  method: string;
  path: string;
  headers: Record<string, string>;
  body: Buffer | null;
  /** Sends only this many bytes of a chunked body, and then closes the connection. */
  cutAt: number | null;
}

const pathValue = (random: Random): string => {
  const odd = random.chance(0.1) ? oddText(random).repeat(random.between(1, 50)) : oddText(random);
  try {
    return random.chance(0.3) ? odd.replace(/[^\x21-\x7e]/g, '%00') : encodeURIComponent(odd);
  } catch {
    return random.pick(['%ud800', '%', '%c0%af', '%00', '%2f', '%2e%2e', '..', '%F0%9F']);
  }
};

function valueFor(random: Random, name: string): string {
  if (random.chance(0.2)) return pathValue(random);
  if (name === 'session') return random.pick(sessionNames);
  if (name === 'job') return random.pick(jobs);
  return encodeURIComponent(random.pick(parameterValues[name] ?? oddTexts.slice(15, 20)));
}

/** A body that the operation takes, for the state that a run has. */
function validBody(random: Random, { id, body }: Described): Json | undefined {
  if (id === 'appendTurn') {
    const messages = random.pick(dialogue(8, random.between(5, 300))) as unknown as Json[];
    return {
      ...{ turnId: `t-${random.between(1, 4_000)}`, messages },
      ...(random.chance(0.3) ? { policy: smallPolicy as unknown as Json } : {}),
      ...(random.chance(0.1) ? { format: random.pick(['anthropic', 'openai-chat', 'gemini']) } : {}),
      ...(random.chance(0.1)
        ? { usage: { input_tokens: 4, output_tokens: 3 }, at: '2026-03-02T09:00:00Z' }
        : {}),
    };
  }
  if (id === 'configure' || id === 'configureTenant') return { policy: smallPolicy as unknown as Json };
  if (id === 'fork') return { to: `${random.pick(sessionNames)}-fork`, throughSeq: random.between(1, 8) };
  if (id === 'startBackfill') return { job: random.pick(jobs), select: { prefix: 'fuzz-1' }, concurrency: 2 };
  return body;
}

const mediaTypes: readonly string[] = [
  ...[
    'text/plain',
    'application/json; charset=utf-16',
    'application/xml',
    'multipart/form-data',
    '',
    'application/json;',
  ],
  ...[
    'application/problem+json',
    'application/json; charset=utf-8',
    '*/*',
    'application/jsonx',
    ';',
    'a'.repeat(2_000),
  ],
];

function oddHeaders(random: Random): Record<string, string> {
  const text = oddText(random)
    .replace(/[^\x20-\x7e]/g, '?')
    .slice(0, 9_000);
  return random.pick<Record<string, string>>([
    { 'content-encoding': random.pick(['gzip', 'br', 'identity', text]) },
    { 'transfer-encoding': 'chunked' },
    { 'x-request-id': text },
    { 'idempotency-key': text },
    { 'if-none-match': text },
    { accept: text },
    { traceparent: text },
    { expect: random.pick(['100-continue', '200-ok']) },
    {
      authorization: random.pick([
        'Bearer ',
        'Bearer x',
        'Basic eDp5',
        text,
        `Bearer ${'a'.repeat(500)}`,
        'Bearer a.b.c',
      ]),
    },
    { connection: random.pick(['close', 'upgrade']), upgrade: 'websocket' },
    { host: text },
    { 'content-length': random.pick(['0', '5', '-1', '1e3', '99999999999']) },
    { 'x-forwarded-for': '127.0.0.1', forwarded: text },
    { [`x-${'h'.repeat(random.between(1, 300))}`]: 'v'.repeat(random.between(1, 20_000)) },
  ]);
}

function requestFor(random: Random): Request {
  let operation = random.pick(described);
  while (rarely.has(operation.id) && random.chance(0.9)) operation = random.pick(described);
  // Half of the messages of a run are real turns, so that the others have something to act on.
  if (random.chance(0.15)) operation = described.find(({ id }) => id === 'appendTurn') ?? operation;
  const path = operation.path.replace(/\{(\w+)\}/g, (_, name: string) => valueFor(random, name));
  const query = operation.parameters
    .filter((parameter) => parameter.in === 'query' && random.chance(0.4))
    .map(({ name }) => `${name}=${valueFor(random, name)}`);
  if (random.chance(0.05)) query.push(`${pathValue(random)}=${pathValue(random)}`);
  if (random.chance(0.03) && query[0]) query.push(query[0]);
  const url = `${path}${query.length > 0 ? `?${query.join('&')}` : ''}`;
  const headers: Record<string, string> = {};
  for (const parameter of operation.parameters)
    if (parameter.in === 'header' && random.chance(0.3))
      headers[parameter.name] = valueFor(random, parameter.name);
  const value = validBody(random, operation) ?? (random.chance(0.05) ? {} : undefined);
  let body: Buffer | null = null;
  if (value !== undefined) {
    const often = operation.id === 'appendTurn' ? 0.5 : 0.75;
    const written = JSON.stringify(
      random.chance(often) ? mutated(random, value, random.chance(0.3) ? 0 : 3) : value,
    );
    body = random.chance(0.25) ? bytesFor(random, mutatedText(random, written)) : Buffer.from(written);
    headers['content-type'] = random.chance(0.05) ? random.pick(mediaTypes) : 'application/json';
  }
  if (random.chance(0.1)) Object.assign(headers, oddHeaders(random));
  const method = random.chance(0.02)
    ? random.pick(['PATCH', 'HEAD', 'OPTIONS', 'TRACE', 'PUT', 'DELETE'])
    : operation.method;
  const cutAt = body && random.chance(0.03) ? random.between(0, body.length) : null;
  return { operation: operation.id, method, path: url, headers, body, cutAt };
}

export interface HttpReport {
  inputs: number;
  /** Answers by status; 0 for connections that the API closed without an answer, which only HTTP's own rules allow. */
  statuses: Record<string, number>;
  operations: number;
  longestMs: number;
  findings: Finding[];
}

interface Answer {
  status: number;
  text: string;
}

/** Requests without an answer, one after the other, after which the API counts as gone. */
const gone = 100;
/** Requests after which the tenant's policy is reset. */
const resetEvery = 200;
/** A request for longer than this is stuck: nothing asks for a longer wait. */
const stuckMs = 60_000;

export async function fuzzHttp({
  address,
  token,
  seed,
  inputs,
  together = 12,
  sessions = sessionNames.length,
}: {
  address: string;
  token: string;
  seed: number;
  inputs: number;
  together?: number;
  /** Sessions that have messages when it begins. */
  sessions?: number;
}): Promise<HttpReport> {
  const report: HttpReport = {
    inputs: 0,
    statuses: {},
    operations: described.length,
    longestMs: 0,
    findings: [],
  };
  const agent = new Agent({ keepAlive: true, maxSockets: together });
  const { hostname, port } = new URL(address);
  const to = { hostname, port: Number(port), token, agent };
  await begin(to, sessions);
  let next = 0;
  let silent = 0;
  const work = async () => {
    for (let index = next++; index < inputs && silent < gone; index = next++) {
      const made = requestFor(randomFor(seed, 'http', index));
      report.inputs++;
      const complain = (problem: string) =>
        report.findings.push({
          target: `${made.operation} ${made.method} ${made.path.slice(0, 200)}`,
          index,
          problem,
        });
      const began = performance.now();
      const answer = await (made.cutAt === null ? ask(to, made) : askCut(to, made));
      const took = performance.now() - began;
      report.longestMs = Math.max(report.longestMs, took);
      report.statuses[answer.status] = (report.statuses[answer.status] ?? 0) + 1;
      silent = answer.status === 0 ? silent + 1 : 0;
      if (silent === gone) complain('the API does not answer any more');
      const wrong = problemOf(answer, made);
      if (wrong !== null) complain(wrong);
      if (took > stuckMs) complain(`took ${Math.round(took)} ms`);
      if (index % resetEvery === 0)
        await ask(to, {
          operation: '',
          method: 'PUT',
          path: '/v1/policy',
          headers: json,
          body: Buffer.from('{"policy":{}}'),
          cutAt: null,
        });
    }
  };
  await Promise.all(Array.from({ length: together }, work));
  agent.destroy();
  return report;
}

const json = { 'content-type': 'application/json' };

/** Sessions with archive parts, a tool's result and a summary, so that requests have something to act on. */
async function begin(to: To, sessions: number): Promise<void> {
  const call = {
    ...{ role: 'assistant', content: null },
    tool_calls: [{ id: 'c1', type: 'function', function: { name: 'get_order', arguments: '{}' } }],
  };
  const result = { role: 'tool', tool_call_id: 'c1', content: 'order 4711: shipped' };
  const turns = dialogue(14);
  const fill = async (session: string) => {
    for (const [index, turn] of turns.entries()) {
      const messages = index === 2 ? [turn[0], call, result] : turn;
      const body = Buffer.from(JSON.stringify({ turnId: `begin-${index}`, messages, policy: smallPolicy }));
      const path = `/v1/sessions/${session}/turns`;
      const { status } = await ask(to, {
        operation: 'appendTurn',
        method: 'POST',
        path,
        headers: json,
        body,
        cutAt: null,
      });
      if (status !== 200) throw new Error(`the sessions to begin with: ${status}`);
    }
  };
  await Promise.all(sessionNames.slice(0, sessions).map(fill));
}

function problemOf({ status, text }: Answer, { operation, method, cutAt }: Request): string | null {
  // The time that was given for it is over.
  if (operation === 'settled' && status === 503 && text.includes('still busy after')) return null;
  // Another request erased the session meanwhile.
  if (status === 503 && text.includes('The workflow was ended before it answered')) return null;
  if (status >= 500 && !(operation === 'readyz' && status === 503)) return `${status}: ${text.slice(0, 400)}`;
  if (status < 400 || cutAt !== null || method === 'HEAD' || text === '') return null;
  try {
    const { failure, title } = JSON.parse(text) as { failure?: unknown; title?: unknown };
    const isListed = typeof failure === 'string' && (failureTypes as readonly string[]).includes(failure);
    if (!isListed || !documented.has(failure))
      return `${status} without a documented type: ${text.slice(0, 300)}`;
    if (typeof title !== 'string' || title === '') return `${status} without a title`;
    return null;
  } catch {
    return `${status} without a problem: ${text.slice(0, 300)}`;
  }
}

interface To {
  hostname: string;
  port: number;
  token: string;
  agent: Agent;
}

function ask(
  { hostname, port, token, agent }: To,
  { method, path, headers, body }: Request,
): Promise<Answer> {
  return new Promise((resolve) => {
    const none = () => resolve({ status: 0, text: '' });
    try {
      const sent = send(
        {
          ...{ hostname, port, agent, method, path, timeout: stuckMs + 5_000 },
          headers: {
            authorization: `Bearer ${token}`,
            ...(body && headers['transfer-encoding'] === undefined
              ? { 'content-length': String(body.length) }
              : {}),
            ...headers,
          },
        },
        (response) => {
          const pieces: Buffer[] = [];
          response.on('data', (piece: Buffer) => pieces.push(piece));
          response.on('error', none);
          response.on('end', () =>
            resolve({ status: response.statusCode ?? 0, text: Buffer.concat(pieces).toString() }),
          );
        },
      );
      sent.on('error', none);
      sent.on('upgrade', (_response, socket) => (socket.destroy(), none()));
      sent.on('timeout', () => sent.destroy());
      sent.end(body ?? undefined);
    } catch {
      // Node's own client refuses to send it.
      none();
    }
  });
}

/** A chunked body whose connection ends midway. */
function askCut({ hostname, port, token }: To, { method, path, body, cutAt }: Request): Promise<Answer> {
  return new Promise((resolve) => {
    const socket = connect({ host: hostname, port });
    let text = '';
    socket.on('data', (piece: Buffer) => (text += piece.toString('latin1')));
    socket.on('error', () => undefined);
    socket.on('close', () =>
      resolve({ status: Number(/^HTTP\/1\.1 (\d{3})/.exec(text)?.[1] ?? 0), text: '' }),
    );
    const piece = (body ?? Buffer.alloc(0)).subarray(0, cutAt ?? 0);
    const head = `${method} ${path.replace(/[^\x21-\x7e]/g, '%00')} HTTP/1.1\r\nhost: ${hostname}\r\nauthorization: Bearer ${token}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n`;
    socket.write(Buffer.concat([Buffer.from(`${head}${(piece.length + 1).toString(16)}\r\n`), piece]), () =>
      setTimeout(() => socket.destroy(), 20),
    );
  });
}
