/** A gRPC proxy of the Temporal server that answers chosen calls with faults. */
import { once } from 'node:events';
import {
  connect,
  constants,
  createServer,
  type ClientHttp2Session,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { AddressInfo } from 'node:net';

export type Fault =
  /** The call is answered with this gRPC status; `details` has the server's encoding. */
  | { code: number; message: string; details?: Buffer }
  /** The call is answered with bytes that are not a message. */
  | 'garbage'
  /** The call is answered with an empty message. */
  | 'empty'
  /** The call is broken off; the connection stays. */
  | 'reset'
  /** The connection is broken off. */
  | 'hang up'
  /** The call is carried out, and the connection is broken off before the answer. */
  | 'hang up after';

export class FaultyWay {
  /** Returns the fault of a call of a method such as `SignalWithStartWorkflowExecution`; null if the call is passed on. */
  fault: (method: string) => Fault | null = () => null;
  private readonly server: Http2Server = createServer();
  private readonly upstream: ClientHttp2Session;
  private readonly sessions = new Set<ServerHttp2Session>();

  /** @param target host:port */
  constructor(target: string) {
    this.upstream = connect(`http://${target}`);
    this.server.on('session', (session) => {
      this.sessions.add(session);
      session.on('error', () => undefined);
    });
    this.server.on('stream', (stream, headers) => this.serve(stream, headers));
  }

  /** Starts the proxy and returns its address, host:port. */
  async open(): Promise<string> {
    this.server.listen(0, '127.0.0.1');
    await once(this.server, 'listening');
    return `127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.server.close();
    for (const session of this.sessions) session.destroy();
    this.upstream.destroy();
  }

  private serve(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    stream.on('error', () => undefined);
    const fault = this.fault(headers[':path']?.split('/').at(-1) ?? '');
    if (fault === null) return this.pass(stream, headers, false);
    if (fault === 'hang up after') return this.pass(stream, headers, true);
    if (fault === 'hang up') return void setImmediate(() => stream.session?.destroy());
    if (fault === 'reset') return stream.close(constants.NGHTTP2_INTERNAL_ERROR);
    const known = { ':status': 200, 'content-type': 'application/grpc' };
    if (typeof fault === 'object') {
      const { code, message, details } = fault;
      const packed = details ? { 'grpc-status-details-bin': details.toString('base64') } : {};
      return stream.respond(
        { ...known, 'grpc-status': String(code), 'grpc-message': encodeURIComponent(message), ...packed },
        { endStream: true },
      );
    }
    const body = fault === 'empty' ? [] : [0x0a, 0xff, 0xff, 0xff, 0xff];
    stream.respond(known, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
    stream.end(Buffer.from([0, 0, 0, 0, body.length, ...body]));
  }

  private pass(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, hangUp: boolean): void {
    const request = this.upstream.request(withoutConnection(headers));
    let trailers: IncomingHttpHeaders = {};
    request.on('error', () => stream.destroy());
    request.on('trailers', (received) => void (trailers = received));
    stream.on('wantTrailers', () => stream.sendTrailers(trailers));
    stream.on('close', () => request.close());
    request.on('response', (received, flags) => {
      // The connection is not broken off inside an event of the other HTTP/2 session.
      if (hangUp)
        return void request.resume().once('close', () => setImmediate(() => stream.session?.destroy()));
      if (stream.destroyed) return;
      const endStream = (flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0;
      stream.respond(received, endStream ? { endStream } : { waitForTrailers: true });
      if (!endStream) request.pipe(stream);
    });
    stream.pipe(request);
  }
}

function withoutConnection({
  ':authority': _authority,
  ':scheme': _scheme,
  ...headers
}: IncomingHttpHeaders) {
  return headers;
}

/** Returns the details of a server's answer to a failed update-with-start: `MultiOperationExecutionFailure` in a `Status`. */
export function multiOperationFailure(code: number, message: string): Buffer {
  const failure = field(1, Buffer.concat([varint(1, code), field(2, Buffer.from(message))]));
  const type = 'type.googleapis.com/temporal.api.errordetails.v1.MultiOperationExecutionFailure';
  const any = Buffer.concat([field(1, Buffer.from(type)), field(2, failure)]);
  return Buffer.concat([varint(1, code), field(2, Buffer.from(message)), field(3, any)]);
}

const varint = (number: number, value: number): Buffer => Buffer.from([number << 3, value]);

/** Encodes a protobuf field of less than 16 KiB. */
function field(number: number, bytes: Buffer): Buffer {
  const { length } = bytes;
  const size = length < 128 ? [length] : [(length & 127) | 128, length >> 7];
  return Buffer.concat([Buffer.from([(number << 3) | 2, ...size]), bytes]);
}
