import { afterAll, beforeAll, expect, test } from 'vitest';
import { type RunningApi, startApi } from '../../../src/api/server.js';
import type { ApiClient, ApiService } from '../../../src/api/settings.js';
import { CallerGone, currentCaller } from '../../../src/store/connection/places.js';

const signals: (AbortSignal | undefined)[] = [];
let api: RunningApi;

const client = {
  contextJson: async () => {
    signals.push(currentCaller()?.signal);
    return { etag: 'e', pieces: ['{}'] };
  },
} as unknown as ApiClient;

beforeAll(async () => {
  api = await startApi({ port: 0 }, { forTenant: () => client } as unknown as ApiService);
});

afterAll(() => api.close());

test('every request ends with the same reason, so that none makes an error of its own', async () => {
  for (let request = 0; request < 2; request++)
    await (await fetch(`${api.address}/v1/sessions/s-1/context`)).text();
  await expect.poll(() => signals.map((signal) => signal?.aborted)).toEqual([true, true]);
  const [first, second] = signals.map((signal): unknown => signal?.reason);
  expect(first).toBeInstanceOf(CallerGone);
  expect(second).toBe(first);
});
