import type { LoggedMessage } from '../conversation/message.js';
import { isFailure } from '../errors.js';
import { errorOf, parsed, type Transport } from './transport.js';

/** How often a replay is begun anew without having come further. */
const mostAttempts = 3;

/** The log, a line each as it arrives. Where the connection breaks it is read again, and goes on where it was. */
export async function* replayed(transport: Transport, path: string): AsyncGenerator<LoggedMessage> {
  let reached = 0;
  for (let attempt = 1; ; attempt++) {
    try {
      for await (const message of messagesOf(transport, path)) {
        if (message.seq <= reached) continue;
        reached = message.seq;
        attempt = 0;
        yield message;
      }
      return;
    } catch (error) {
      if (!isFailure(error, 'Api.Unavailable') || attempt >= mostAttempts) throw error;
    }
  }
}

type Line = LoggedMessage | { problem: Parameters<typeof errorOf>[0] };

async function* messagesOf(transport: Transport, path: string): AsyncGenerator<LoggedMessage> {
  for await (const text of linesOf(transport.stream({ method: 'GET', path }))) {
    const line = parsed(text, { url: path, status: 200 }) as Line;
    if ('problem' in line) throw errorOf(line.problem);
    yield line;
  }
}

/** JSON never holds a raw line feed: every one of them ends a message. */
async function* linesOf(texts: AsyncIterable<string>): AsyncGenerator<string> {
  let begun: string[] = [];
  for await (const text of texts) {
    const [first = '', ...more] = text.split('\n');
    begun.push(first);
    for (const next of more) {
      yield begun.join('');
      begun = [next];
    }
  }
  const rest = begun.join('');
  if (rest !== '') yield rest;
}
