import { createServer } from 'node:net';

/** A free TCP port on loopback: the preferred one if it is free, so that addresses stay the same from start to start. */
export async function freePort(preferred?: number): Promise<number> {
  return (
    (preferred ? await tryPort(preferred) : null) ??
    (await tryPort(0)) ??
    Promise.reject(new Error('no free port'))
  );
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
