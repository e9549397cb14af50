/** Turns whose bodies arrive at one byte per second, and connections that never send a token. */
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Attack, Target } from './target.js';

const withToken = 1_500;
const silent = 500;

export const slowSockets: Attack = {
  description: `${withToken} connections of one token send the bodies of turns byte by byte, ${silent} more send half a header; each that is closed is opened anew`,
  async run(target, signal, note) {
    const head =
      `POST /v1/sessions/slow/turns HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${target.token}\r\n` +
      `content-type: application/json\r\ncontent-length: 100000\r\n\r\n{`;
    const open = new Set<Socket>();
    const keep = async (text: string) => {
      while (!signal.aborted) {
        note(await one(target, text, open, signal));
        await sleep(1_000, undefined, { signal }).catch(() => undefined);
      }
    };
    const dripping = setInterval(() => {
      for (const socket of open) if (socket.writable) socket.write(' ');
    }, 1_000);
    await Promise.all([
      ...Array.from({ length: withToken }, () => keep(head)),
      ...Array.from({ length: silent }, () => keep('GET /v1/sessions HTTP/1.1\r\nhost: ')),
    ]);
    clearInterval(dripping);
  },
};

/** Until the connection has ended; answers what came of it. */
function one({ address }: Target, text: string, open: Set<Socket>, signal: AbortSignal): Promise<string> {
  const { hostname, port } = new URL(address);
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname, () => {
      socket.write(text);
      open.add(socket);
    });
    let status = '';
    const stop = () => socket.destroy();
    signal.addEventListener('abort', stop, { once: true });
    socket.on('data', (chunk) => {
      status ||= String(chunk).split(' ')[1] ?? '';
      // It is answered; a kept connection would take the next bytes for another request.
      socket.destroy();
    });
    socket.on('error', (error: NodeJS.ErrnoException) => (status ||= error.code ?? error.name));
    socket.once('close', () => {
      open.delete(socket);
      signal.removeEventListener('abort', stop);
      resolve(signal.aborted ? 'cut off at the end' : status || 'closed');
    });
  });
}
