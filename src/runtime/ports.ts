import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

/** Milliseconds for which the last threads of a killed server may hold its port after its process has ended. */
const releaseMs = 300;

/** Below the ports that systems give to clients, which could take the port of a stopped server. */
const ownPorts = { from: 20_000, to: 32_000 };
const attempts = 20;

/** Returns a free TCP port on loopback: the preferred one if it is free, so that addresses stay the same between starts. */
export async function freePort(preferred?: number): Promise<number> {
  return (
    (preferred ? await awaitPort(preferred) : null) ??
    (await tryOwnPorts()) ??
    (await tryPort(0)) ??
    Promise.reject(new Error('no free port'))
  );
}

async function tryOwnPorts(): Promise<number | null> {
  for (let attempt = 0; attempt < attempts; attempt++) {
    const port = await tryPort(randomInt(ownPorts.from, ownPorts.to));
    if (port !== null) return port;
  }
  return null;
}

async function awaitPort(port: number): Promise<number | null> {
  const deadline = Date.now() + releaseMs;
  for (;;) {
    const free = await tryPort(port);
    if (free !== null || Date.now() > deadline) return free;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

function tryPort(port: number): Promise<number | null> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(null));
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => {
      const address = server.address();
      server.close(() => resolve(address && typeof address === 'object' ? address.port : null));
    });
  });
}
