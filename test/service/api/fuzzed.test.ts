/** A small part of `npm run fuzz`: changed requests to a running API, and the database afterwards. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { fuzzHttp } from '../../fuzz/http.js';
import { checkSoundness } from '../../fuzz/sound.js';
import { startApiStack, type ApiStack } from '../../support/api.js';

let server: ApiStack;

beforeAll(async () => {
  server = await startApiStack({ requestTimeoutMs: 1_000 });
});

afterAll(() => server.stop());

test('changed requests get answers of the API, and leave no half-written row', async () => {
  const { address } = server.api;
  const { inputs, findings } = await fuzzHttp({
    address,
    token: server.token,
    seed: 7,
    inputs: 300,
    sessions: 6,
  });
  expect(inputs).toBe(300);
  expect(findings).toEqual([]);
  const { problems, sessions, messages } = await checkSoundness(server.stack.ownerUrl);
  expect(problems).toEqual([]);
  expect(sessions).toBeGreaterThan(6);
  expect(messages).toBeGreaterThan(100);
});
