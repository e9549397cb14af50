/** Options of adapters in plain JavaScript, which no compiler has checked. */
import { describe, expect, test } from 'vitest';
import { palimpsest } from '../../../src/adapters/ai-sdk.js';
import { palimpsestMiddleware } from '../../../src/adapters/langchain.js';

const method = () => {};
const client = { sync: method, toolResponse: method, search: method, expand: method };

describe.each([
  ['palimpsestMiddleware', palimpsestMiddleware as (options: unknown) => unknown, {}],
  ['palimpsest', palimpsest as (options: unknown) => unknown, { session: 's-1' }],
])('%s', (_, adapter, needed) => {
  const valid = { client, ...needed };

  test('takes its options', () => {
    const options = { policy: { model: 'gpt-4o' }, onEdit: 'append', memory: true, onSync: method };
    expect(() => adapter({ ...valid, ...options })).not.toThrow();
  });

  test.each([
    ['options', undefined],
    ['client', needed],
    ['client', { ...valid, client: Promise.resolve(client) }],
    ['polcy', { ...valid, polcy: {} }],
    ['policy', { ...valid, policy: 'gpt-4o' }],
    ['onEdit', { ...valid, onEdit: 'forks' }],
    ['memory', { ...valid, memory: 'yes' }],
    ['onSync', { ...valid, onSync: 'log' }],
    ['session', { ...valid, session: '' }],
  ])('refuses a wrong %s', (path, options) => {
    expect(() => adapter(options)).toThrow(
      expect.objectContaining({ type: 'Input.Invalid', path, hint: expect.any(String) }),
    );
  });
});

test('palimpsest needs a session', () => {
  expect(() => palimpsest({ client } as never)).toThrow(
    expect.objectContaining({ type: 'Input.Invalid', path: 'session' }),
  );
});
