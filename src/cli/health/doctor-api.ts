import { fail, failed, ok, type Finding } from './doctor-finding.js';

const timeoutMs = 5_000;

/** Whether the API is up, whether its servers answer it, whether the token counts. */
export async function* checkApi({ url, token }: { url: string; token?: string }): AsyncGenerator<Finding> {
  const ask = (path: string) =>
    fetch(new URL(path.replace(/^\//, ''), url.endsWith('/') ? url : `${url}/`), {
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      signal: AbortSignal.timeout(timeoutMs),
    });
  const started = performance.now();
  try {
    const health = await ask('/healthz');
    if (!health.ok) {
      yield fail(
        'API',
        `${url}/healthz answers ${health.status}`,
        'Is this the address of `palimpsest api`?',
      );
      return;
    }
    yield ok('API', `${url} answers in ${(performance.now() - started).toFixed(0)} ms`);
    const ready = await ask('/readyz');
    yield ready.ok
      ? ok('API ready', 'its PostgreSQL and Temporal answer')
      : fail(
          'API ready',
          `${ready.status}: ${(await ready.text()).slice(0, 300)}`,
          'Look at its servers: run `palimpsest doctor` where it runs.',
        );
    const sessions = await ask('/v1/sessions?limit=1');
    if (sessions.status === 401)
      yield fail(
        'API token',
        token === undefined ? 'one is asked for' : 'it is not accepted',
        'Give --token, or set PALIMPSEST_TOKEN.',
      );
    else if (sessions.ok) yield ok('API token', token === undefined ? 'none is asked for' : 'accepted');
    else yield fail('API token', `/v1/sessions answers ${sessions.status}`);
  } catch (error) {
    const { cause } = error as Error;
    yield failed('API', cause instanceof Error ? cause : error);
  }
}
