/** Calls without a request, as JavaScript allows them, fail with `Input.Invalid` before a method reads a field. */
import { invalid, type PalimpsestError } from '../errors.js';
import { routes } from './routes.js';

type Method<This, Request, Answer> = (this: This, request: Request) => Answer;

const paths: Readonly<Record<string, { path: string }>> = { ...routes, archive: routes.archiveParts };
const requestIsOptional: ReadonlySet<string> = new Set(['sessions', 'tenantPolicy', 'backfills', 'tokens']);
/** They return generators, so they throw; the other methods reject. */
const generators: ReadonlySet<string> = new Set(['replay', 'export', 'historyLog']);

/** Wraps every method of a client's prototype that needs a request. */
export function checkRequests(prototype: object): void {
  for (const name of Object.getOwnPropertyNames(prototype)) {
    if (paths[name] === undefined || requestIsOptional.has(name)) continue;
    const method = Reflect.get(prototype, name) as Method<unknown, unknown, unknown>;
    Object.defineProperty(prototype, name, { value: asking(name, method) });
  }
}

/** Wraps the method of this name, so that it is called with objects only. */
export function asking<This, Request, Answer>(
  name: string,
  method: Method<This, Request, Answer>,
): Method<This, Request, Answer | Promise<never>> {
  return function (request) {
    if (typeof request === 'object' && request !== null) return method.call(this, request);
    const fault = missingRequest(name);
    if (generators.has(name)) throw fault;
    return Promise.reject(fault);
  };
}

function missingRequest(name: string): PalimpsestError {
  const [, field = 'request'] = /\{(\w+)\}/.exec(paths[name]?.path ?? '') ?? [];
  const hint = field === 'request' ? 'Give an object with its fields.' : `Give an object: { ${field}: '…' }.`;
  return invalid(`${name} was called without a request: ${field} is missing`, field, hint);
}
