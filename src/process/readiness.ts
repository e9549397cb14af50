import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Pool } from 'pg';
import { type FailureType, invalid, isFailure } from '../errors.js';
import { assertMigrated } from '../store/connection/migrate.js';
import type { SessionWorkflows } from '../temporal/session-workflows.js';

/** The failure of a server that cannot be used, or null. */
export type ServerFailure = { type: FailureType; message: string; hint?: string } | null;

export interface Readiness {
  /** Null if PostgreSQL answers and has the schema of this version. */
  postgres: ServerFailure;
  temporal: ServerFailure;
}

/** Checks both servers, which takes seconds at most. */
export async function readinessOf(pool: Pool, workflows: SessionWorkflows): Promise<Readiness> {
  const [postgres, temporal] = await Promise.all([
    failureOfServer(() => assertMigrated(pool)),
    failureOfServer(() => workflows.reach()),
  ]);
  return { postgres, temporal };
}

/**
 * Returns the state for callers on other machines, without messages: the message of a failure may contain addresses, users and
 * databases.
 */
export function withoutMessages<State extends Readiness>(state: State): object {
  const bare = (failure: ServerFailure) =>
    failure && { type: failure.type, ...(failure.hint === undefined ? {} : { hint: failure.hint }) };
  return { ...state, postgres: bare(state.postgres), temporal: bare(state.temporal) };
}

/** Whether an address of a socket belongs to this machine. */
export function isLoopbackAddress(address = ''): boolean {
  return address === '::1' || /^(?:::ffff:)?127(?:\.\d{1,3}){3}$/i.test(address);
}

/** Returns the typed failure of `ask`, or null if it succeeds. */
export async function failureOfServer(ask: () => Promise<void>): Promise<ServerFailure> {
  try {
    await ask();
    return null;
  } catch (error) {
    if (!isFailure(error)) throw error;
    const { type, message, hint } = error;
    return { type, message, ...(hint === undefined ? {} : { hint }) };
  }
}

interface StatusSettings {
  /** host:port to listen on; port 0 picks a free one. */
  address: string;
  /** Text of `/metrics`. */
  metrics: () => Promise<string>;
  /** Body of `/readyz`, and whether the process is ready. */
  readiness: () => Promise<Readiness & { ready: boolean; polling?: boolean }>;
}

export interface StatusServer {
  /** The URL with the actual port, e.g. `http://127.0.0.1:9464`. */
  url: string;
  close(): Promise<void>;
}

/**
 * Serves the status of a worker or a gateway: `/metrics`, `/healthz` (the process is alive) and `/readyz` (it can work). There is no login,
 * so bind it to an internal address.
 */
export async function startStatusServer(settings: StatusSettings): Promise<StatusServer> {
  const { address } = settings;
  const [, host = '', port = ''] = /^\[?(.*?)\]?:(\d+)$/.exec(address) ?? [];
  const server = createServer((request, response) => {
    const path = (request.url ?? '').split('?', 1)[0] ?? '';
    const local = isLoopbackAddress(request.socket.remoteAddress);
    answer(path, local, settings, response).catch(() => send(response, 500, 'text/plain', 'failed\n'));
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) =>
      reject(
        invalid(
          `Cannot listen on ${address}: ${error.code ?? error.message}.`,
          'PALIMPSEST_METRICS_ADDRESS',
          'Choose a free port and an address of this machine.',
        ),
      ),
    );
    server.listen(Number(port), host, resolve);
  });
  const bound = server.address() as AddressInfo;
  return {
    url: `http://${bound.family === 'IPv6' ? `[${bound.address}]` : bound.address}:${bound.port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function answer(
  path: string,
  local: boolean,
  { metrics, readiness }: StatusSettings,
  response: ServerResponse,
): Promise<void> {
  if (path === '/metrics')
    return send(response, 200, 'text/plain; version=0.0.4; charset=utf-8', await metrics());
  if (path === '/healthz') return send(response, 200, 'text/plain', 'ok\n');
  if (path !== '/readyz') return send(response, 404, 'text/plain', '/metrics, /healthz or /readyz\n');
  const state = await readiness();
  send(
    response,
    state.ready ? 200 : 503,
    'application/json',
    `${JSON.stringify(local ? state : withoutMessages(state))}\n`,
  );
}

function send(response: ServerResponse, status: number, type: string, body: string): void {
  response.writeHead(status, { 'content-type': type }).end(body);
}
