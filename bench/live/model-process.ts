/**
 * A model endpoint in a separate process that takes `LATENCY_MS` for every answer. It sends its address to its parent and ends
 * with it.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { summarizer } from '../model-script.js';
import type { ChatBody, RecordedRequest } from '../../test/support/model-server.js';

const answer = summarizer(Number(process.env['LATENCY_MS'] ?? '0'));
let requests = 0;

const server = createServer((incoming, response) => {
  const chunks: Buffer[] = [];
  const at = Date.now();
  incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
  incoming.on('end', () => {
    const body = JSON.parse(Buffer.concat(chunks).toString('utf8')) as ChatBody;
    const request: RecordedRequest = {
      ...{ number: ++requests, key: '', body, headers: incoming.headers, clientPort: undefined, at },
      ...{ answered: null, aborted: false },
    };
    void Promise.resolve(answer(request)).then((reply) => {
      response
        .writeHead(reply.status, { 'content-type': 'application/json' })
        .end(JSON.stringify(reply.body));
    });
  });
});
server.listen(0, '127.0.0.1', () => {
  process.send?.(`http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`);
});
process.once('disconnect', () => {
  server.closeAllConnections();
  server.close();
});
