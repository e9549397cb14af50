import { mkdtempSync, writeFileSync } from 'node:fs';
import http2, { type IncomingHttpHeaders } from 'node:http2';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { generate } from 'selfsigned';

export interface TlsProxy {
  address: string;
  caFile: string;
  /** A certificate that the proxy accepts, and one of another authority. */
  client: { certFile: string; keyFile: string };
  stranger: { certFile: string; keyFile: string };
  /** Number of requests that were passed on. */
  passed(): number;
  close(): void;
}

const unauthenticated = { ':status': 200, 'content-type': 'application/grpc', 'grpc-status': '16' };

/**
 * A proxy before a gRPC server on 127.0.0.1, as Temporal Cloud's frontend behaves: TLS, a client certificate of its authority, and
 * an authorization header with this key.
 */
export async function startTlsProxy(target: string, apiKey: string): Promise<TlsProxy> {
  const [authority, other] = await Promise.all([authorityOf('authority'), authorityOf('another authority')]);
  const [server, client, stranger] = await Promise.all([
    certificateOf(authority, 'temporal.test'),
    certificateOf(authority, 'client'),
    certificateOf(other, 'stranger'),
  ]);
  const upstream = http2.connect(`http://${target}`);
  let passed = 0;
  const proxy = http2.createSecureServer({
    ...{
      key: server.private,
      cert: server.cert,
      ca: authority.cert,
      requestCert: true,
      rejectUnauthorized: true,
    },
  });
  proxy.on('stream', (stream, headers) => {
    stream.on('error', () => undefined);
    if (headers.authorization !== `Bearer ${apiKey}`) {
      stream.respond(
        { ...unauthenticated, 'grpc-message': 'the key is missing or wrong' },
        { endStream: true },
      );
      return;
    }
    passed += 1;
    const request = upstream.request({ ...headers, ':authority': target, ':scheme': 'http' });
    request.on('error', () => stream.destroy());
    stream.on('close', () => request.close());
    stream.pipe(request);
    request.on('response', (answer) => stream.respond(withoutStatus(answer), { waitForTrailers: true }));
    let trailers: IncomingHttpHeaders = {};
    request.on('trailers', (given) => (trailers = given));
    stream.on('wantTrailers', () => stream.sendTrailers(trailers));
    request.on('data', (bytes: Buffer) => stream.write(bytes));
    request.on('end', () => stream.end());
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const folder = mkdtempSync(path.join(os.tmpdir(), 'tls-proxy-'));
  const file = (name: string, text: string) => {
    writeFileSync(path.join(folder, name), text);
    return path.join(folder, name);
  };
  const filesOf = (name: string, { cert, private: key }: { cert: string; private: string }) => ({
    certFile: file(`${name}.pem`, cert),
    keyFile: file(`${name}.key`, key),
  });
  return {
    address: `127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    caFile: file('ca.pem', authority.cert),
    client: filesOf('client', client),
    stranger: filesOf('stranger', stranger),
    passed: () => passed,
    close() {
      upstream.destroy();
      proxy.close();
    },
  };
}

const withoutStatus = (headers: IncomingHttpHeaders) => ({ ...headers, ':status': 200 });

const authorityOf = (name: string) =>
  generate([{ name: 'commonName', value: name }], {
    ...{ keyType: 'ec', algorithm: 'sha256' },
    extensions: [
      { name: 'basicConstraints', cA: true, critical: true },
      { name: 'keyUsage', keyCertSign: true, cRLSign: true, critical: true },
    ],
  });

const certificateOf = (authority: { cert: string; private: string }, name: string) =>
  generate([{ name: 'commonName', value: name }], {
    ...{ keyType: 'ec', algorithm: 'sha256', ca: { key: authority.private, cert: authority.cert } },
    extensions: [
      { name: 'basicConstraints', cA: false },
      { name: 'keyUsage', digitalSignature: true, critical: true },
      { name: 'extKeyUsage', serverAuth: true, clientAuth: true },
      { name: 'subjectAltName', altNames: [{ type: 2, value: name }] },
    ],
  });
