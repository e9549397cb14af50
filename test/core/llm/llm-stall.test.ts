/** A call of a process that stalls until the time limit of the call is over. The endpoint runs in its own thread. */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { createModelClient } from '../../../src/llm/client.js';
import { apiKey, asked, never } from '../../support/model-client.js';

const timeoutMs = 3_000;

/** Answers the first request as soon as the process stalls. */
const endpoint = `
  const { createServer } = require('node:http');
  const { parentPort, workerData } = require('node:worker_threads');
  const server = createServer((request, response) => {
    request.resume();
    parentPort.postMessage('asked');
    Atomics.wait(workerData, 0, 0);
    const message = { role: 'assistant', content: 'Fine. '.repeat(20_000) };
    const body = JSON.stringify({ choices: [{ index: 0, message, finish_reason: 'stop' }] });
    response.writeHead(200, { 'content-type': 'application/json' }).end(body);
  });
  server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port));
`;

test('an answer that came during the stall is used', async () => {
  const stalls = new Int32Array(new SharedArrayBuffer(4));
  const thread = new Worker(endpoint, { eval: true, workerData: stalls });
  try {
    const [port] = (await once(thread, 'message')) as [number];
    const client = createModelClient({ apiKey, baseUrl: `http://127.0.0.1:${port}/v1`, timeoutMs });
    const answer = client.summarize(asked, { model: 'm', expectedInputTokens: 40, signal: never });
    await once(thread, 'message');
    Atomics.store(stalls, 0, 1);
    Atomics.notify(stalls, 0);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, timeoutMs);
    expect((await answer).text).toMatch(/^Fine\. /);
  } finally {
    await thread.terminate();
  }
});
