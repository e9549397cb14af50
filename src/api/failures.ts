/** Failures before an operation runs: HTTP errors and defects. */
import type { Duplex } from 'node:stream';
import { STATUS_CODES } from 'node:http';
import { type FailureType, isFailure, PalimpsestError } from '../errors.js';
import { otherMedia } from './body.js';
import type { Operation } from './operations/operation.js';
import { problemMediaType, problemOf, Refused } from './problem.js';

/** Converts any error to a failure of docs/failures.md. An unexpected error becomes `Api.Failed`. */
export function asFailure(error: unknown, { mediaType = '', bodyLimit = 0 } = {}): PalimpsestError {
  if (isFailure(error)) return error;
  const { code, statusCode } = error as { code?: unknown; statusCode?: unknown };
  switch (code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return new PalimpsestError('Input.TooLarge', `The body has more than ${bodyLimit} bytes.`, {
        path: 'body',
        hint: 'Send the turn in parts: a session takes any number of turns.',
        details: { bodyLimitBytes: bodyLimit },
      });
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
    case 'FST_ERR_CTP_EMPTY_TYPE':
      return otherMedia(mediaType);
    case 'FST_ERR_BAD_URL':
      return new Refused(400, 'Input.Invalid', 'The path is not percent-encoded UTF-8.', {
        path: 'url',
        hint: 'Encode each id with encodeURIComponent.',
      });
    case 'FST_ERR_MAX_PARAM_LENGTH':
      return new Refused(400, 'Input.Invalid', 'An id in the path is too long.', {
        path: 'url',
        hint: 'Use a shorter id, for instance a UUID or a hash.',
      });
  }
  if (typeof statusCode === 'number' && statusCode >= 400 && statusCode < 500)
    return new Refused(400, 'Input.Invalid', 'The request is malformed.', { path: 'body' });
  return new PalimpsestError('Api.Failed', 'The request ended in an unexpected error.', {
    hint: "Search the API's log for the requestId.",
    cause: error,
  });
}

/** The origin of an unexpected error. It omits the message, because parsers and databases quote their input in it. */
export function traceOf({ cause }: PalimpsestError): Record<string, unknown> {
  if (!(cause instanceof Error)) return { error: typeof cause };
  const frames = (cause.stack ?? '').split('\n').filter((line) => /^\s+at /.test(line));
  const { code } = cause as { code?: unknown };
  const known = typeof code === 'string' || typeof code === 'number';
  return { error: cause.name, ...(known ? { code } : {}), stack: frames.slice(0, 12) };
}

const servers: Partial<Record<FailureType, string>> = {
  'Store.Unavailable': 'The database is not available now.',
  'Temporal.Unavailable': 'Temporal is not available now.',
  'Identity.Unavailable': 'The identity provider is not available now.',
};

/** A failure for callers elsewhere. The text of a server's failure may contain addresses, users and databases. */
export function withoutAddresses(failure: PalimpsestError): PalimpsestError {
  const text = servers[failure.type];
  if (text === undefined) return failure.forTenants ?? failure;
  const hint = 'Repeat the request after a moment. The log of the server has the reason.';
  return new PalimpsestError(failure.type, text, { hint, details: failure.details });
}

/** Length to which a message shortens a path. */
const longestPath = 200;

/** The error for an unknown path, or for a method that the path does not have. */
export function notThere(operations: readonly Operation[], method: string, url: string): Refused {
  const path = url.split('?')[0] ?? '';
  const methods = operations.filter((one) => patternOf(one.path).test(path)).map((one) => one.method);
  const shown = path.length > longestPath ? `${path.slice(0, longestPath)}…` : path;
  if (methods.length === 0)
    return new Refused(404, 'Input.Invalid', `The path ${shown} does not exist.`, {
      path: 'url',
      hint: path.includes('/v1/v1/')
        ? 'Leave /v1 out of the URL that the client is given: the client adds it.'
        : '/openapi.json lists every operation.',
    });
  const allow = methods.join(', ');
  return new Refused(
    405,
    'Input.Invalid',
    `This path does not support ${method}.`,
    { path: 'method', hint: `Use ${allow}.` },
    { allow },
  );
}

function patternOf(path: string): RegExp {
  return new RegExp(`^${path.replace(/\{\w+\}/g, '[^/]+')}$`);
}

/**
 * Answers a request that Node's parser refuses. There is no request object yet, so the answer is written to the
 * connection itself.
 */
export function answerRaw(error: NodeJS.ErrnoException, socket: Duplex): void {
  if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy();
  const failure = ofParser(error.code);
  const body = JSON.stringify(problemOf(failure));
  socket.end(
    [
      `HTTP/1.1 ${failure.status} ${STATUS_CODES[failure.status]}`,
      `Content-Type: ${problemMediaType}`,
      `Content-Length: ${Buffer.byteLength(body)}`,
      'Connection: close',
      '',
      body,
    ].join('\r\n'),
  );
}

function ofParser(code: string | undefined): Refused {
  if (code === 'HPE_HEADER_OVERFLOW')
    return new Refused(431, 'Input.Invalid', 'Request line and headers have more than 16 KiB.', {
      path: 'headers',
      hint: 'Send ids of at most 200 bytes, and fewer headers.',
    });
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT')
    return new Refused(408, 'Input.Invalid', 'The request did not arrive completely in time.', {
      path: 'body',
      hint: 'Send the request again, faster or in smaller turns.',
    });
  return new Refused(400, 'Input.Invalid', 'This is not HTTP/1.1.', {
    path: 'headers',
    hint: 'Check the port: another service may be using it.',
  });
}
