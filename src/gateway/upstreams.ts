/** The upstreams of the operator's list. A request reaches no other host. */
import { invalid } from '../errors.js';
import { Refused } from '../api/problem.js';

export interface Upstream {
  name: string;
  url: URL;
  /** Key of the provider that replaces the client's; null: the client's passes through. */
  key: string | null;
}

export interface Target {
  upstream: Upstream;
  /** Path and query at the upstream. */
  path: string;
}

/** Throws `Input.Invalid` if the list is empty, or a key belongs to no upstream. */
export function upstreamsOf(
  urls: Readonly<Record<string, string>>,
  keys: Readonly<Record<string, string>>,
): Upstream[] {
  const stray = Object.keys(keys).find((name) => urls[name] === undefined);
  if (stray !== undefined)
    throw invalid(`gateway.keys names ${stray}, which is no upstream`, `gateway.keys.${stray}`);
  const list = Object.entries(urls).map(([name, url]) => ({
    name,
    url: new URL(url),
    key: keys[name] ?? null,
  }));
  if (list.length > 0) return list;
  throw invalid(
    'The gateway has no upstream.',
    'gateway.upstreams',
    'Name one: --upstream openai=https://api.openai.com, or PALIMPSEST_GATEWAY_UPSTREAMS.',
  );
}

/** `/openai/v1/…` is `/v1/…` at the upstream `openai`; `/v1/…` is the same at the first upstream. Throws `Input.Invalid`. */
export function targetOf(upstreams: readonly Upstream[], target: string): Target {
  const [path = ''] = target.split('?', 1);
  if (!path.startsWith('/') || /[\\\s]|(?:^|\/|%2f|%5c)(?:\.|%2e){1,2}(?:\/|%2f|%5c|$)/i.test(path))
    throw refused(400, 'The target of the request is no plain path.', 'Send a path such as /v1/messages.');
  const [, name = ''] = path.split('/', 2);
  const named = upstreams.find((one) => one.name === name);
  const upstream = named ?? (path.startsWith('/v1/') ? upstreams[0] : undefined);
  if (upstream === undefined)
    throw refused(
      404,
      'The path names no upstream.',
      `It begins with /v1/ or with the name of one: ${upstreams.map((one) => `/${one.name}/`).join(', ')}.`,
    );
  const rest = named ? target.slice(name.length + 1).replace(/^(?!\/)/, '/') : target;
  return { upstream, path: `${upstream.url.pathname.replace(/\/$/, '')}${rest}` };
}

const refused = (status: number, message: string, hint: string): Refused =>
  new Refused(status, 'Input.Invalid', message, { path: 'url', hint });
