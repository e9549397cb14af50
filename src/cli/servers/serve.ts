import { orchestrates, workerRoles } from '../../config/schema.js';
import { migrate } from '../../store/connection/migrate.js';
import { roleNames } from '../../store/connection/roles.js';
import { findDatabase, findOwner, findServers, findTemporal } from '../../process/servers.js';
import type { PalimpsestClient } from '../../contract/client.js';
import { checkId } from '../../contract/ids.js';
import { invalid } from '../../errors.js';
import { configFor, connectClient, refuseUrl, type Globals } from '../command/connect.js';
import { onInterrupt } from '../terminal/input.js';
import { oneOf, plural, wholeNumber } from '../terminal/numbers.js';
import type { Run } from '../command/run.js';
import { startWorkflowThread } from '../../worker/workflow-thread.js';

/** `palimpsest worker` serves until SIGTERM, then lets activities finish within the grace time. */
export async function serveWorker(globals: Globals, given: readonly string[] | undefined): Promise<void> {
  refuseUrl(globals, 'worker');
  const config = configFor(globals);
  const roles = given?.map((role) => oneOf(role, '--role', workerRoles)) ?? config.worker.roles;
  if (orchestrates(roles)) startWorkflowThread();
  const { temporal } = await findTemporal(config);
  // A worker for workflows only needs no database.
  const orchestratesOnly = roles.every((role) => role === 'workflow');
  const database = orchestratesOnly ? undefined : await findDatabase(config);
  const { signal } = onInterrupt();
  const { runWorkerProcess } = await import('../../worker/worker-process.js');
  await runWorkerProcess(config, { database, temporal, roles, signal });
}

/** `palimpsest api` serves until SIGTERM, then lets requests finish. */
export async function serveApi(globals: Globals, flags: { host?: string; port?: string }): Promise<void> {
  refuseUrl(globals, 'api');
  const config = configFor(globals);
  const api = {
    ...config.api,
    ...(flags.host === undefined ? {} : { host: flags.host }),
    ...(flags.port === undefined ? {} : { port: wholeNumber(flags.port, '--port', { most: 65_535 }) }),
  };
  const servers = await findServers(config);
  const { signal } = onInterrupt();
  const { runApiProcess } = await import('../../api/api-process.js');
  await runApiProcess({ ...config, api }, { ...servers, signal });
}

/** `palimpsest gateway` serves until SIGTERM, then lets requests finish. */
export async function serveGateway(
  globals: Globals,
  { host, port, upstream = [] }: { host?: string; port?: string; upstream?: string[] },
): Promise<void> {
  refuseUrl(globals, 'gateway');
  if (!upstream.every((one) => one.includes('=')))
    throw invalid(
      '--upstream needs a name and an address.',
      '--upstream',
      'Write e.g. --upstream openai=https://api.openai.com.',
    );
  const named = upstream.length > 0 ? { PALIMPSEST_GATEWAY_UPSTREAMS: upstream.join(',') } : undefined;
  const config = configFor(globals, named);
  const gateway = {
    ...config.gateway,
    ...(host === undefined ? {} : { host }),
    ...(port === undefined ? {} : { port: wholeNumber(port, '--port', { most: 65_535 }) }),
  };
  const servers = await findServers(config);
  const { signal } = onInterrupt();
  const { runGatewayProcess } = await import('../../gateway/gateway-process.js');
  await runGatewayProcess({ ...config, gateway }, { ...servers, signal });
}

/** `palimpsest mcp` serves standard input and output, or HTTP, until the client or a signal ends it. */
export async function serveMcp(
  globals: Globals,
  { session = configFor(globals).mcp.session, http }: { session?: string; http?: string },
): Promise<void> {
  const port = http === undefined ? null : wholeNumber(http, '--http', { most: 65_535 });
  if (session !== undefined) checkId(session, '--session');
  const { signal } = onInterrupt();
  let connected: Promise<PalimpsestClient> | undefined;
  // A client that starts this process shows nothing of a failure before its first call.
  const source = (): Promise<PalimpsestClient> =>
    (connected ??= connectClient(globals).catch((error: unknown) => {
      connected = undefined;
      throw error;
    }));
  try {
    if (port === null) {
      const { serveMcpStdio } = await import('../../mcp/stdio.js');
      return await serveMcpStdio({ source, session }, signal);
    }
    await source();
    const { startMcpHttp } = await import('../../mcp/http.js');
    const running = await startMcpHttp({ source, session }, port);
    process.stderr.write(`MCP server: ${running.url}\n`);
    await new Promise<void>((resolve) => {
      if (signal.aborted) resolve();
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
    await running.close();
  } finally {
    await (await connected?.catch(() => undefined))?.close();
  }
}

/** `palimpsest migrate` */
export async function migrateSchema(run: Run, flags: { roles?: boolean }): Promise<void> {
  refuseUrl(run.globals, 'migrate');
  const { config } = run;
  const { url, roles = flags.roles ? config.rolePasswords : undefined } = await findOwner(config);
  const applied = await migrate(url, { roles });
  if (run.json) return run.out.value({ applied });
  if (roles) await run.out.line(`The roles ${Object.values(roleNames).join(', ')} serve this database.`);
  await run.out.line(
    applied === 0 ? 'The schema is up to date.' : `${plural(applied, 'migration')} applied.`,
  );
}
