/**
 * The calls for which an agent waits: an append is one statement, a context another one, for any length of the session. Cached facts of a session are never used once they are outdated.
 */
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { eraseSession } from '../../../src/store/sessions/erase.js';
import { mostKnown, recall, remember } from '../../../src/store/sessions/session-table.js';
import { openPool } from '../../support/pool.js';
import { configureTenant } from '../../../src/store/sessions/configure.js';
import { loadSession } from '../../../src/store/sessions/sessions.js';
import { changeLimits } from '../../../src/store/tenants/limits.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { countMessage } from '../../../src/tokens/message.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { dialogue } from '../../support/dialogue.js';
import { type Stack, startStack } from '../../support/stack.js';
import { statements } from '../../support/statements.js';
import { configureSession, newSession, replayed, talk } from '../../support/store.js';

let stack: Stack;
let pool: Pool;

/** A separate pool, with the caches of another process. */
let elsewhere: Pool;

beforeAll(async () => {
  // A worker in this process would send statements too.
  stack = await startStack({ worker: false });
  [pool, elsewhere] = [openPool(stack.databaseUrl), openPool(stack.databaseUrl)];
});

afterAll(async () => {
  await Promise.all([pool.end(), elsewhere.end()]);
  await stack.stop();
});

const range = ({ fromSeq, throughSeq }: { fromSeq: number; throughSeq: number }) => ({ fromSeq, throughSeq });

describe('on a session that this process has seen', () => {
  it.each([[2], [400]])('an append is one statement, and so is a context, after %i turns', async (length) => {
    const { palimpsest } = stack;
    const session = `hot-${length}`;
    const policy = { contextWindow: 1_000_000 };
    const [first = [], ...more] = dialogue(length, 10);
    await palimpsest.appendTurn({ session, turnId: 'first', messages: first, policy });
    await palimpsest.appendTurn({ session, turnId: 'more', messages: more.flat() });
    const turn = { session, turnId: 'hot', messages: talk(2) };
    expect(await statements(() => palimpsest.appendTurn(turn))).toEqual(['with']);
    expect(await statements(() => palimpsest.context({ session }))).toEqual(['with']);
  });

  it.each([[2], [400]])(
    'a list that goes on is stored with few statements, after %i messages',
    async (length) => {
      const { palimpsest } = stack;
      const session = `list-${length}`;
      const policy = { contextWindow: 1_000_000 };
      const messages = talk(length);
      await palimpsest.sync({ session, messages, policy });
      const more = [...messages, ...talk(2)];
      const sync = () => palimpsest.sync({ session, messages: more, onEdit: 'fork' });
      // The turn with its list; the context.
      expect(await statements(sync)).toEqual(['with', 'with']);
      // The session and the beginning that is known, at the same time; the context.
      expect(await statements(sync)).toEqual(['select', 'select', 'with']);
    },
  );

  it('a list that goes on after the turn of another process is compared with the log', async () => {
    const { palimpsest } = stack;
    const session = 'list-elsewhere';
    const said = talk(3);
    await palimpsest.sync({ session, messages: said.slice(0, 1), policy: { contextWindow: 1_000_000 } });
    const other = { tenant: stack.queuePrefix, session, turnId: 'other', messages: said.slice(1, 2) };
    await appendTurn(elsewhere, other);
    const { stored, throughSeq } = await palimpsest.sync({ session, messages: said });
    expect(stored).toMatchObject({ fromSeq: 3, throughSeq: 3 });
    expect(throughSeq).toBe(3);
  });

  it('a turn that is repeated costs no more', async () => {
    const turn = { ...newSession(), turnId: '1', messages: talk(2) };
    const first = await appendTurn(pool, turn);
    const again = vi.fn(() => appendTurn(pool, turn));
    expect(await statements(again)).toEqual(['with']);
    expect(await again.mock.results[0]?.value).toMatchObject({ ...range(first), repeated: true });
  });

  it('a turn after the turn of another process costs one more statement', async () => {
    const ids = newSession();
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(2) });
    await appendTurn(elsewhere, { ...ids, turnId: '2', messages: talk(2) });
    const third = { ...ids, turnId: '3', messages: talk(2) };
    expect(await statements(() => appendTurn(pool, third))).toEqual(['with', 'with']);
    expect(await appendTurn(pool, third)).toMatchObject({ fromSeq: 5, throughSeq: 6, repeated: true });
    expect(await statements(() => appendTurn(pool, { ...third, turnId: '4' }))).toEqual(['with']);
  });

  it('turns of two processes at once are all stored, one after another', async () => {
    const ids = newSession();
    await appendTurn(pool, { ...ids, turnId: '0', messages: talk(2) });
    await appendTurn(elsewhere, { ...ids, turnId: '0', messages: talk(2) });
    const turns = Array.from({ length: 40 }, (_, at) =>
      appendTurn(at % 2 ? pool : elsewhere, { ...ids, turnId: `t-${at}`, messages: talk(1) }),
    );
    const seqs = (await Promise.all(turns)).map(({ fromSeq }) => fromSeq);
    expect(seqs.sort((a, b) => a - b)).toEqual(Array.from({ length: 40 }, (_, at) => at + 3));
    const row = await loadSession(pool, ids);
    expect(row).toMatchObject({ nextSeq: 43, turns: 41, liveMessages: 42 });
    const tokens = (await replayed(pool, ids)).reduce((sum, message) => sum + message.tokens, 0);
    expect(row.liveTokens).toBe(tokens);
  });

  it('a turn of a tenant with a newer policy, or with limits, is stored by it', async () => {
    const ids = newSession('limited-tenant');
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(2) });
    await configureTenant(elsewhere, ids.tenant, { contextWindow: 64_000 });
    await appendTurn(pool, { ...ids, turnId: '2', messages: talk(2) });
    expect((await loadSession(elsewhere, ids)).budget).toBeLessThanOrEqual(64_000);
    await changeLimits(elsewhere, ids.tenant, { storedBytes: 1 });
    const beyond = appendTurn(pool, { ...ids, turnId: '3', messages: talk(2) });
    await expect(beyond).rejects.toMatchObject({ type: 'Tenant.BeyondLimit' });
  });
});

describe('the cached facts of a session', () => {
  it('are replaced after a change of the tokenizer', async () => {
    const ids = newSession();
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(2) });
    await configureSession(elsewhere, ids, { tokenizer: 'cl100k_base' });
    const [message] = talk(1);
    await appendTurn(pool, { ...ids, turnId: '2', messages: [message!] });
    const { tokens } = (await replayed(pool, ids)).at(-1)!;
    expect((await loadSession(pool, ids)).tokenizer).toBe('cl100k_base');
    expect(tokens).toBe(countMessage(message!, counterFor('cl100k_base')));
    expect(recall(pool, ids)).toMatchObject({ tokenizer: 'cl100k_base' });
  });

  it('are replaced for another session with the same id, in another format', async () => {
    const ids = newSession();
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(2) });
    await eraseSession(elsewhere, ids);
    const messages = [{ role: 'user', content: [{ type: 'text', text: 'Hello' }] }];
    const turn = { ...ids, turnId: '1', messages, format: 'anthropic' as const };
    await appendTurn(elsewhere, turn);
    const next = [{ role: 'assistant', content: [{ type: 'tool_use', id: 'c', name: 'look', input: {} }] }];
    await appendTurn(pool, { ...ids, turnId: '2', messages: next });
    expect(await replayed(pool, ids)).toHaveLength(2);
    expect(recall(pool, ids)).toMatchObject({ format: 'anthropic' });
  });

  it('are dropped if the session is erased', async () => {
    const ids = newSession();
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(2) });
    await eraseSession(elsewhere, ids);
    expect(await appendTurn(pool, { ...ids, turnId: '1', messages: talk(2) })).toMatchObject({ fromSeq: 1 });
  });

  it('do not hide a wrong format', async () => {
    const ids = newSession();
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(2) });
    const wrong = { ...ids, turnId: '2', messages: [], format: 'anthropic' as const };
    await expect(appendTurn(pool, wrong)).rejects.toMatchObject({ type: 'Input.Invalid', path: 'format' });
  });

  it('are bounded: the least recently used session is removed first', () => {
    const own = openPool(stack.databaseUrl);
    const ids = (index: number) => ({ tenant: 'many', session: `s-${index}` });
    for (let index = 0; index < mostKnown; index++)
      remember(own, ids(index), { format: 'openai-chat', tokenizer: 'o200k_base' });
    expect(recall(own, ids(0))).toBeDefined();
    remember(own, ids(mostKnown), { format: 'openai-chat', tokenizer: 'o200k_base' });
    expect([recall(own, ids(0)), recall(own, ids(1))]).toEqual([expect.anything(), undefined]);
  });
});
