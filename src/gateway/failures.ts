/** Answers of the gateway itself, in the form of the provider's errors. */
import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { headersOf, Refused, statusOf } from '../api/problem.js';
import { PalimpsestError } from '../errors.js';
import { chat } from './protocols/chat.js';
import type { Protocol } from './protocols/protocol.js';

/** Returns the id of the answer, for the log. */
export function sendFailure(
  outgoing: ServerResponse,
  failure: PalimpsestError,
  protocol: Protocol = chat,
): string {
  const { type, message, hint } = failure;
  const status = failure instanceof Refused ? failure.status : statusOf(type);
  const requestId = randomUUID();
  const sentence = /[.!?]$/.test(message) ? message : `${message}.`;
  const text = JSON.stringify(protocol.failure(type, hint === undefined ? message : `${sentence} ${hint}`));
  const again = status === 429 || status >= 500;
  outgoing.writeHead(status, {
    ...headersOf(failure, status),
    ...{ 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) },
    ...{ 'x-palimpsest-failure': type, 'x-request-id': requestId, 'x-should-retry': String(again) },
  });
  outgoing.end(text);
  return requestId;
}

export const overloaded = (message: string): PalimpsestError =>
  new PalimpsestError('Api.Overloaded', message, { hint: 'Repeat the request after a moment.' });
