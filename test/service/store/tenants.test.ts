/**
 * A tenant's policy applies to all its sessions, for fields that they do not set: to new ones from the start, to others from
 * their next use on. Deployment layers are below it and are stored in a session.
 */
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { effectivePolicy, policyOf } from '../../../src/policy/layers.js';
import { readContextSource, readTailMetas } from '../../../src/store/reading/context.js';
import { openPool } from '../../support/pool.js';
import type { SessionIds } from '../../../src/contract/ids.js';
import { findSession, loadSession, setExhausted } from '../../../src/store/sessions/sessions.js';
import { tenantsWithoutRedaction } from '../../../src/store/sessions/unredacted.js';
import { configureTenant, findTenantPolicy } from '../../../src/store/sessions/configure.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { counterFor, registerCounter } from '../../../src/tokens/counter.js';
import { countMessage } from '../../../src/tokens/message.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { statements } from '../../support/statements.js';
import { compactThrough, configureSession, newSession, talk } from '../../support/store.js';

let database: TestDatabase;
let pool: Pool;
let tenants = 0;

beforeAll(async () => {
  database = await createDatabase();
  pool = openPool(database.url);
  // Layers are compared as they were given.
  await pool.query('alter table palimpsest.sessions alter column begun_mode drop default');
});

afterAll(async () => {
  await pool.end();
  await database.drop();
});

const newTenant = (): string => `tenant ${++tenants}`;

describe('a tenant’s policy', () => {
  it('applies to new sessions, below their own policy, and is named as the source', async () => {
    const tenant = newTenant();
    await configureTenant(pool, tenant, { contextWindow: 64_000, keep: { messages: 9 } });
    const ids = newSession(tenant);
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(2), policy: { keep: { messages: 4 } } });
    const { policy, sources } = effectivePolicy((await loadSession(pool, ids)).policy);
    expect([policy.contextWindow, policy.keep]).toEqual([64_000, { messages: 4 }]);
    expect([sources['contextWindow'], sources['keep'], sources['target']]).toEqual([
      'tenant',
      'session',
      undefined,
    ]);
  });

  it('keeps the mode of a session that began under another default, until its own policy is replaced', async () => {
    const [tenant, alone] = [newTenant(), newTenant()].map((one) => newSession(one));
    const modeOf = async (ids: SessionIds) => policyOf((await loadSession(pool, ids)).policy).summary.mode;
    for (const ids of [tenant!, alone!]) {
      await appendTurn(pool, { ...ids, turnId: '1', messages: talk(2) });
      for (const [begun, mode] of [
        [null, 'journal'],
        ['incremental', 'incremental'],
      ]) {
        await pool.query(
          'update palimpsest.sessions set begun_mode = $3 where tenant_id = $1 and session_id = $2',
          [ids.tenant, ids.session, begun],
        );
        expect(await modeOf(ids)).toBe(mode);
      }
      await configureTenant(pool, ids.tenant, { contextWindow: 64_000 });
      await appendTurn(pool, { ...ids, turnId: '2', messages: talk(2) });
      expect(await modeOf(ids)).toBe('incremental');
    }
    await configureTenant(pool, tenant!.tenant, { summary: { mode: 'full_rewrite' } });
    expect(await modeOf(tenant!)).toBe('full_rewrite');
    await configureSession(pool, alone!, { keep: { messages: 4 } });
    expect(await modeOf(alone!)).toBe('journal');
  });

  it('of an earlier version stays without redaction until it is replaced, and so do its sessions', async () => {
    const tenant = newTenant();
    const redacts = async (ids: SessionIds) =>
      policyOf((await loadSession(pool, ids)).policy).redact !== null;
    const [old, next, later, other] = [
      newSession(tenant),
      newSession(tenant),
      newSession(tenant),
      newSession(newTenant()),
    ];
    await appendTurn(pool, { ...old, turnId: '1', messages: talk(2) });
    expect(await redacts(old)).toBe(true);
    // As the migration leaves them.
    await pool.query(
      "insert into palimpsest.tenants (tenant_id, policy, policy_version, begun_redact) values ($1, '{}', 0, false)",
      [tenant],
    );
    await pool.query('update palimpsest.sessions set begun_redact = false where tenant_id = $1', [tenant]);
    await appendTurn(pool, { ...next, turnId: '1', messages: talk(2) });
    await appendTurn(pool, { ...other, turnId: '1', messages: talk(2) });
    expect([await redacts(old), await redacts(next), await redacts(other)]).toEqual([false, false, true]);
    expect(await findTenantPolicy(pool, tenant)).toBeNull();
    expect(await tenantsWithoutRedaction(pool)).toEqual([{ tenant, sessions: 2 }]);
    expect(await configureTenant(pool, tenant, { contextWindow: 64_000 })).toEqual({ policyVersion: 1 });
    await appendTurn(pool, { ...later, turnId: '1', messages: talk(2) });
    expect([await redacts(old), await redacts(later)]).toEqual([false, true]);
    expect(await tenantsWithoutRedaction(pool)).toEqual([{ tenant, sessions: 2 }]);
    await configureSession(pool, next, { keep: { messages: 4 } });
    expect([await redacts(old), await redacts(next)]).toEqual([false, true]);
    expect(await tenantsWithoutRedaction(pool)).toEqual([{ tenant, sessions: 1 }]);
    await configureTenant(pool, tenant, { redact: {} });
    expect(await redacts(old)).toBe(true);
    expect(await tenantsWithoutRedaction(pool)).toEqual([]);
  });

  it('is versioned, and another tenant does not see it', async () => {
    const tenant = newTenant();
    expect(await findTenantPolicy(pool, tenant)).toBeNull();
    expect(await configureTenant(pool, tenant, { contextWindow: 64_000 })).toEqual({ policyVersion: 1 });
    expect(await configureTenant(pool, tenant, { contextWindow: 48_000 })).toEqual({ policyVersion: 2 });
    expect(await findTenantPolicy(pool, tenant)).toEqual({ policy: { contextWindow: 48_000 }, version: 2 });
    const other = newSession(newTenant());
    await appendTurn(pool, { ...other, turnId: '1', messages: talk(1) });
    expect(policyOf((await loadSession(pool, other)).policy).contextWindow).toBeNull();
  });

  it.each([
    ['append', (ids) => appendTurn(pool, { ...ids, turnId: 'next', messages: talk(1) })],
    ['context', (ids) => readContextSource(pool, ids, 'own')],
    ['measure and plan', (ids) => readTailMetas(pool, ids)],
    ['status', (ids) => loadSession(pool, ids)],
  ] as [string, (ids: ReturnType<typeof newSession>) => Promise<unknown>][])(
    'is applied to a session at its next %s',
    async (_, use) => {
      const ids = newSession(newTenant());
      await appendTurn(pool, { ...ids, turnId: '1', messages: talk(4) });
      const before = await loadSession(pool, ids);
      await configureTenant(pool, ids.tenant, { contextWindow: 64_000, trigger: { messages: 20 } });
      await use(ids);
      const { rows } = await pool.query<{
        policy_version: number;
        budget: number;
        measure_at_messages: number;
      }>('select * from palimpsest.sessions where tenant_id = $1 and session_id = $2', [
        ids.tenant,
        ids.session,
      ]);
      expect(rows[0]?.policy_version).toBe(before.policyVersion + 1);
      expect(rows[0]?.measure_at_messages).toBe('20');
      expect(rows[0]?.budget).toBeGreaterThan(before.budget);
    },
  );

  it('with another tokenizer makes the context counted again, also with many concurrent users of the session', async () => {
    const ids = newSession(newTenant());
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(6, 60) });
    await compactThrough(pool, ids, 2);
    await configureTenant(pool, ids.tenant, { tokenizer: 'chars/3.3' });
    const turns = Array.from({ length: 6 }, (_, turn) =>
      appendTurn(pool, { ...ids, turnId: `more ${turn}`, messages: talk(2, 30) }),
    );
    const reads = Array.from({ length: 6 }, () => readContextSource(pool, ids, 'own'));
    await Promise.all([...turns, ...reads]);
    const counter = counterFor('chars/3.3');
    const { session, source } = await readContextSource(pool, ids, 'own');
    for (const { message, tokens } of source.tail) expect(tokens).toBe(countMessage(message, counter));
    const head = source.head?.tokens ?? [];
    const sizes = [...source.tail.map(({ tokens }) => tokens), ...head];
    expect(session.liveTokens).toBe(sizes.reduce((sum, tokens) => sum + tokens, 0));
    expect(session.policyVersion).toBe(2);
  });

  it('does not change the answer to a turn that was stored under the earlier one', async () => {
    const ids = newSession(newTenant());
    const turn = { ...ids, turnId: '1', messages: talk(3) };
    await appendTurn(pool, turn);
    await configureTenant(pool, ids.tenant, { tokenizer: 'chars/4' });
    expect(await appendTurn(pool, turn)).toMatchObject({ repeated: true, fromSeq: 1, throughSeq: 3 });
  });

  it('that contradicts a session is not applied to it, with one report, and stops no turn', async () => {
    const ids = newSession(newTenant());
    const own = { contextWindow: 8_000 };
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(2), policy: own });
    await configureTenant(pool, ids.tenant, { contextWindow: 200_000, overhead: 20_000 });
    await appendTurn(pool, { ...ids, turnId: '2', messages: talk(2) });
    const row = await loadSession(pool, ids);
    expect(row.policy).toEqual({ session: own });
    expect(row.lastError).toMatchObject({
      type: 'Input.Invalid',
      message: expect.stringContaining('version 1'),
    });
    expect(row.nextSeq).toBe(5);
    await configureTenant(pool, ids.tenant, { keep: { messages: 3 } });
    expect((await loadSession(pool, ids)).policy).toEqual({
      session: own,
      tenant: { keep: { messages: 3 } },
    });
    expect((await loadSession(pool, ids)).lastError).toBeNull();
  });

  it('that names an unknown counter is refused by this process, and applied by processes with it', async () => {
    const ids = newSession(newTenant());
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(2) });
    const policy = JSON.stringify({ tokenizer: 'custom:elsewhere' });
    await pool.query('insert into palimpsest.tenants values ($1, $2, 1)', [ids.tenant, policy]);
    await expect(loadSession(pool, ids)).rejects.toMatchObject({ path: 'policy.tokenizer' });
    registerCounter('elsewhere', (text) => text.length);
    expect((await loadSession(pool, ids)).tokenizer).toBe('custom:elsewhere');
  });

  it('lets an exhausted session try again', async () => {
    const ids = newSession(newTenant());
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(4) });
    await setExhausted(pool, ids, { atSeq: 4, tokens: 100, reason: 'nothing may be evicted' });
    await configureTenant(pool, ids.tenant, { keep: { messages: 1 } });
    expect((await loadSession(pool, ids)).exhausted).toBeNull();
  });

  it.each([
    [{ windows: 1 }, 'policy.windows'],
    [{ contextWindow: 1_000, overhead: 2_000 }, 'policy.contextWindow'],
  ])('%j is refused and changes nothing', async (policy, path) => {
    const tenant = newTenant();
    await expect(configureTenant(pool, tenant, policy as object)).rejects.toMatchObject({
      type: 'Input.Invalid',
      path,
    });
    expect(await findTenantPolicy(pool, tenant)).toBeNull();
  });

  it('costs no statement if it did not change', async () => {
    const plain = newSession(newTenant());
    const governed = newSession(newTenant());
    await configureTenant(pool, governed.tenant, { contextWindow: 64_000 });
    const sent = async (ids: typeof plain): Promise<string[][]> => {
      await appendTurn(pool, { ...ids, turnId: '1', messages: talk(2) });
      return [
        await statements(() => appendTurn(pool, { ...ids, turnId: '2', messages: talk(2) })),
        await statements(() => readContextSource(pool, ids, 'own')),
        await statements(() => loadSession(pool, ids)),
      ];
    };
    for (const ids of [plain, governed])
      expect((await sent(ids)).map(({ length }) => length)).toEqual([1, 1, 1]);
  });
});

describe('the policy of a deployment', () => {
  const deployment = {
    file: { contextWindow: 100_000, target: 0.5 },
    environment: { contextWindow: 50_000, keep: { messages: 8 }, debounceMs: 5 },
  };

  it("is stored in a session at its creation, below its own and its tenant's", async () => {
    const ids = newSession(newTenant());
    await configureTenant(pool, ids.tenant, { target: 0.7 });
    const policy = { keep: { messages: 5 } };
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(1), policy, deployment });
    await appendTurn(pool, { ...ids, turnId: '2', messages: talk(1), deployment: { file: { target: 0.2 } } });
    const { policy: effective, sources } = effectivePolicy((await loadSession(pool, ids)).policy);
    expect(effective).toMatchObject({
      contextWindow: 100_000,
      target: 0.7,
      keep: { messages: 5 },
      debounceMs: 5,
    });
    expect(sources).toEqual({
      contextWindow: 'file',
      target: 'tenant',
      keep: 'session',
      debounceMs: 'environment',
    });
  });

  it('is renewed when a process with one configures the session, and kept when a process without one does', async () => {
    const ids = newSession(newTenant());
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(1), deployment });
    await configureSession(pool, ids, { pins: ['Be brief.'] });
    expect((await loadSession(pool, ids)).policy).toEqual({
      ...deployment,
      session: { pins: ['Be brief.'] },
    });
    await configureSession(pool, ids, {}, { environment: { target: 0.4 } });
    expect((await loadSession(pool, ids)).policy).toEqual({ environment: { target: 0.4 }, session: {} });
  });

  it('that contradicts the session’s own leaves no trace of the session', async () => {
    const ids = newSession(newTenant());
    const turn = { ...ids, turnId: '1', messages: talk(1), policy: { overhead: 120_000 }, deployment };
    await expect(appendTurn(pool, turn)).rejects.toMatchObject({ type: 'Input.Invalid' });
    expect(await findSession(pool, ids)).toBeNull();
  });
});
