/** Temporal behind TLS that demands a client certificate and an API key, as Temporal Cloud does. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Palimpsest } from '../../../src/index.js';
import type { TemporalSettings } from '../../../src/temporal/connection.js';
import { startWorker } from '../../../src/worker/worker.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { startStack, type Stack } from '../../support/stack.js';
import { temporalAddress } from '../../support/temporal.js';
import { startTlsProxy, type TlsProxy } from '../../support/tls-proxy.js';

const apiKey = 'key-of-the-namespace';

let proxy: TlsProxy;
let stack: Stack;
let secured: TemporalSettings;

beforeAll(async () => {
  proxy = await startTlsProxy(temporalAddress(), apiKey);
  const { address, caFile, client } = proxy;
  secured = { address, apiKey, caFile, ...client, serverName: 'temporal.test' };
  stack = await startStack({ settings: { temporal: secured } });
});

afterAll(async () => {
  await stack.stop();
  proxy.close();
});

const connect = (temporal: TemporalSettings) => {
  const { databaseUrl, queuePrefix } = stack;
  return Palimpsest.connect({ databaseUrl, temporal, queuePrefix, tenant: queuePrefix });
};

test('worker and library work through it: a session is compacted', async () => {
  const passed = proxy.passed();
  const palimpsest = await connect(secured);
  for (const [index, messages] of dialogue(18).entries())
    await palimpsest.appendTurn({ session: 's', turnId: `t-${index}`, messages, policy: smallPolicy });
  await palimpsest.settled({ session: 's' });
  expect(await palimpsest.status({ session: 's' })).toMatchObject({ generation: 1, lastError: null });
  await palimpsest.close();
  expect(proxy.passed()).toBeGreaterThan(passed + 18);
});

test.concurrent.each<[string, Partial<TemporalSettings>]>([
  ['no client certificate', { certFile: undefined, keyFile: undefined }],
  ['the certificate of another authority', {}],
  ['another key', { apiKey: 'guessed' }],
  ['no key', { apiKey: undefined }],
  ["the system's authorities only", { caFile: undefined }],
  ['another name', { serverName: 'elsewhere.test' }],
])('%s: library and worker fail with Temporal.Unavailable', async (name, change) => {
  const temporal = { ...secured, ...change, ...(name.includes('another authority') ? proxy.stranger : {}) };
  const tried = [connect(temporal), startWorker({ ...stack.settings, temporal })];
  for (const result of await Promise.allSettled(tried))
    expect(result).toMatchObject({
      status: 'rejected',
      reason: { type: 'Temporal.Unavailable', hint: expect.stringContaining('certificates') as string },
    });
});

test.each<[Partial<TemporalSettings>, string]>([
  [{ certFile: undefined }, 'temporal.certFile'],
  [{ keyFile: undefined }, 'temporal.keyFile'],
  [{ caFile: '/nowhere/ca.pem' }, 'temporal.caFile'],
  [{ tls: false }, 'temporal.tls'],
])('%j is refused with its field', async (change, path) => {
  await expect(connect({ ...secured, ...change })).rejects.toMatchObject({ type: 'Input.Invalid', path });
});
