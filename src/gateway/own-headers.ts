/** What a request says to the gateway: headers, or a field of its body. */
import { isUtf8 } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import type { Json } from '../conversation/message.js';
import { invalid } from '../errors.js';
import { isFields } from '../formats/content.js';
import type { EditMode } from './stored-list.js';

const known = ['session', 'key', 'on-edit', 'recovery'].map((name) => `x-palimpsest-${name}`);

/** Nobody but a caller of Palimpsest sends headers with this prefix, so that an unknown one is a misspelt one. Throws `Input.Invalid`. */
export function refuseUnknownHeaders({ headers }: IncomingMessage): void {
  const unknown = Object.keys(headers).find(
    (name) => name.startsWith('x-palimpsest-') && !known.includes(name),
  );
  if (unknown === undefined) return;
  throw invalid(
    `The gateway knows no header ${unknown}.`,
    `headers.${unknown}`,
    `Its headers are ${known.join(', ')}.`,
  );
}

/** Text of UTF-8 is taken as such: Node reads each of its bytes as a letter of Latin-1. Throws `Input.Invalid` if there are several. */
export function sessionHeader(incoming: IncomingMessage): string | undefined {
  const given = oneHeader(incoming, 'x-palimpsest-session');
  if (given === undefined) return undefined;
  const bytes = Buffer.from(given, 'latin1');
  return isUtf8(bytes) ? bytes.toString('utf8') : given;
}

/** A session as a header: a client that sends it back names the same session. */
export function inHeader(session: string): string {
  return Buffer.from(session.replace(/\p{Cc}/gu, encodeURIComponent)).toString('latin1');
}

/** Throws `Input.Invalid` naming the header. */
export function optionsOf(incoming: IncomingMessage): { onEdit: EditMode | undefined; recovery: boolean } {
  return {
    onEdit: oneOf(incoming, 'x-palimpsest-on-edit', ['fork', 'append', 'refuse']),
    recovery: oneOf(incoming, 'x-palimpsest-recovery', ['on', 'off']) !== 'off',
  };
}

/** Whether the body may have a field with the session. */
export const isJson = ({ headers }: IncomingMessage): boolean =>
  /^application\/json\b/i.test(headers['content-type'] ?? '') && headers['content-encoding'] === undefined;

/** The text in a field, such as `metadata.session`. */
export function textIn(body: Json, field: string): string | undefined {
  const found = field
    .split('.')
    .reduce<Json | undefined>((at, name) => (isFields(at) ? at[name] : undefined), body);
  return typeof found === 'string' && found !== '' ? found : undefined;
}

function oneHeader({ headersDistinct }: IncomingMessage, name: string): string | undefined {
  const [value, ...others] = headersDistinct[name] ?? [];
  if (others.length === 0) return value;
  throw invalid(`The request has several headers ${name}.`, `headers.${name}`, 'Send one.');
}

function oneOf<Value extends string>(
  incoming: IncomingMessage,
  name: string,
  values: readonly Value[],
): Value | undefined {
  const given = oneHeader(incoming, name)?.toLowerCase();
  if (given === undefined) return undefined;
  const value = values.find((one) => one === given);
  if (value !== undefined) return value;
  throw invalid(`The header ${name} is ${given}.`, `headers.${name}`, `Send ${values.join(' or ')}.`);
}
