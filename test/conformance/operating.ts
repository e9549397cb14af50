import { all, compacted, failure, invalidAt, noSession, talked, type Case } from './case.js';
import { dialogue } from '../support/dialogue.js';

const pinned = { pins: ['Answer in French.'] };

export const operating: Case[] = [
  {
    name: 'a compaction on request answers its outcome, and null if there is nothing to do',
    async run(client) {
      const session = 'by-hand';
      await talked(client, session);
      return [
        await client.compact({ session }),
        await client.resummarize({ session }),
        (await client.compactions({ session })).map(({ generation, reason }) => ({ generation, reason })),
        await failure(client.compact({ session: 'nobody' })),
        await failure(client.resummarize({ session: 'nobody' })),
        await failure(client.compactions({ session: '' })),
      ];
    },
    expected: [
      { generation: 1, reason: 'manual', method: 'model', archivePart: 1 },
      null,
      [{ generation: 1, reason: 'manual' }],
      noSession,
      noSession,
      invalidAt('session'),
    ],
  },
  {
    name: 'a compaction need not be waited for',
    async run(client) {
      const session = 'not-waited';
      await talked(client, session);
      const answered = await client.compact({ session, wait: false });
      await client.settled({ session });
      return [answered, (await client.status({ session })).generation];
    },
    expected: [null, 1],
  },
  {
    name: 'the status shows sizes, policy and phase of the session',
    async run(client) {
      await compacted(client, 'status');
      // A compaction returns with its commit, of which the workflow has yet to hear.
      let status = await client.status({ session: 'status' });
      while (status.phase !== 'idle') status = await client.status({ session: 'status' });
      return [status, await failure(client.status({ session: 'nobody' }))];
    },
    expected: [
      { session: 'status', messages: 20, generation: 1, phase: 'idle', paused: false, exhausted: null },
      noSession,
    ],
  },
  {
    name: 'an idle session is settled; an unknown session fails',
    async run(client) {
      await talked(client, 'at-rest');
      return [
        await client.settled({ session: 'at-rest' }).then(() => 'settled'),
        await failure(client.settled({ session: 'nobody', timeoutMs: 1_000 })),
      ];
    },
    expected: ['settled', noSession],
  },
  {
    name: 'sessions are listed in order, a page at a time',
    async run(client) {
      for (const name of ['list/b', 'list/a', 'list/Ä', 'list/a b?&', 'other'])
        await talked(client, name, dialogue(1, 10));
      const first = await client.sessions({ prefix: 'list/', limit: 3 });
      return [
        first,
        await client.sessions({ prefix: 'list/', limit: 3, after: first.next ?? '' }),
        await client.sessions({ prefix: 'list/', failed: true }),
        await failure(client.sessions({ limit: 0 })),
        await failure(client.sessions({ limit: 1_001 })),
        await failure(client.sessions({ after: 'NUL \u0000' })),
      ];
    },
    expected: [
      { sessions: [{ session: 'list/a' }, { session: 'list/a b?&' }, { session: 'list/b' }], next: 'list/b' },
      { sessions: [{ session: 'list/Ä', messages: 2, turns: 1, paused: false }], next: null },
      { sessions: [], next: null },
      invalidAt('limit'),
      invalidAt('limit'),
      invalidAt('after'),
    ],
  },
  {
    name: 'a closed session stays closed until the next turn',
    async run(client) {
      const session = 'closed';
      await talked(client, session, dialogue(1, 10));
      await client.closeSession({ session });
      const listed = async () => (await client.sessions({ prefix: session })).sessions[0]?.closedAt !== null;
      const closed = await listed();
      await client.appendTurn({ session, turnId: 'more', messages: [{ role: 'user', content: 'Yes?' }] });
      return [closed, await listed(), await failure(client.closeSession({ session: 'nobody' }))];
    },
    expected: [true, false, noSession],
  },
  {
    name: 'an erased session is gone',
    async run(client) {
      const session = 'erased';
      await compacted(client, session);
      await client.fork({ session, to: 'forked from erased', throughSeq: 2 });
      return [
        await client.erase({ session, forks: true }),
        await failure(client.context({ session })),
        (await client.sessions({ prefix: session })).sessions,
        await failure(client.erase({ session })),
      ];
    },
    expected: [{ messages: 22, generations: 1, forks: 1, remaining: 0 }, noSession, [], noSession],
  },
  {
    name: 'erased messages leave tombstones, and a repetition changes nothing',
    async run(client) {
      const session = 'with erased messages';
      await compacted(client, session);
      await client.fork({ session, to: 'sharing them', throughSeq: 4 });
      const text = 'Request 2:';
      const { hits, elsewhere } = await client.findMessages({ session, text });
      const seqs = hits.map(({ seq }) => seq);
      const dry = await client.eraseMessages({ session, seqs, dryRun: true });
      const once = await client.eraseMessages({ session, seqs, reason: 'asked' });
      const again = await client.eraseMessages({ session, seqs, forks: true });
      const [second] = (await all(client.replay({ session }))).filter(({ seq }) => seq === 3);
      return [
        [hits, elsewhere],
        [dry.dryRun, dry.messages.length, dry.generations, dry.remaining],
        [once.already, once.generations, once.forks, once.remaining],
        [again.already, again.generations, again.forks.map((fork) => fork.session), again.remaining],
        [second?.message.role, second?.erased?.reason, (await client.findMessages({ session, text })).hits],
        await failure(client.eraseMessages({ session, seqs: [1_000] })),
        await failure(client.eraseMessages({ session, seqs: [] })),
        await failure(client.eraseMessages({ session: 'nobody', seqs: [1] })),
        await failure(client.findMessages({ session: 'nobody', text })),
      ];
    },
    expected: [
      [[{ seq: 3, role: 'user', erased: false }], []],
      [true, 1, [1], [{ session: 'sharing them', seqs: [3] }]],
      [[], [1], [], [{ session: 'sharing them', seqs: [3] }]],
      [[3], [], ['sharing them'], []],
      ['user', 'asked', []],
      invalidAt('seqs'),
      invalidAt('seqs'),
      noSession,
      noSession,
    ],
  },
  {
    name: 'a paused session is not compacted until it is resumed',
    async run(client) {
      const session = 'paused';
      await talked(client, session);
      await client.pause({ session });
      await client.settled({ session });
      const held = [
        (await client.status({ session })).paused,
        await failure(client.compact({ session })),
        (await client.context({ session })).messages.length,
      ];
      await client.resume({ session });
      await client.settled({ session });
      return [
        ...held,
        (await client.status({ session })).paused,
        await client.compact({ session }),
        await failure(client.pause({ session: 'nobody' })),
        await failure(client.resume({ session: 'nobody' })),
      ];
    },
    expected: [true, { type: 'Input.Invalid' }, 20, false, { generation: 1 }, noSession, noSession],
  },
  {
    name: 'the policy of a session is read as it was given, and replaced',
    async run(client) {
      const session = 'policy';
      await talked(client, session, dialogue(1, 10));
      return [
        await client.policy({ session }),
        await client.configure({ session, policy: { contextWindow: 9_000, trigger: { fraction: 0.7 } } }),
        await client.policy({ session }),
        await failure(client.configure({ session, policy: { trigger: { fraction: 7 } } })),
        await failure(client.configure({ session, policy: { unknown: 1 } as object })),
        await failure(client.configure({ session: 'nobody', policy: {} })),
        await failure(client.policy({ session: 'nobody' })),
      ];
    },
    expected: [
      { policy: { contextWindow: 8_000 }, policyVersion: 1 },
      { policyVersion: 2 },
      { policy: { contextWindow: 9_000, trigger: { fraction: 0.7 } }, policyVersion: 2 },
      { type: 'Input.Invalid' },
      invalidAt('policy.unknown'),
      noSession,
      noSession,
    ],
  },
  {
    name: 'pins are a separate part of the policy',
    async run(client) {
      const session = 'pins';
      await talked(client, session, dialogue(1, 10));
      return [
        await client.pins({ session }),
        await client.pin({ session, ...pinned }),
        await client.pins({ session }),
        await client.policy({ session }),
        await failure(client.pin({ session, pins: [''] })),
        await failure(client.pin({ session: 'nobody', ...pinned })),
        await failure(client.pins({ session: 'nobody' })),
      ];
    },
    expected: [
      { pins: [] },
      { policyVersion: 2 },
      pinned,
      { policy: { contextWindow: 8_000, ...pinned }, policyVersion: 2 },
      { type: 'Input.Invalid' },
      noSession,
      noSession,
    ],
  },
  {
    name: 'the policy of the tenant applies to fields that a session does not set',
    async run(client) {
      const before = await client.tenantPolicy();
      const { policyVersion } = await client.configureTenant({ policy: { contextWindow: 64_000 } });
      const session = 'of-tenant';
      await client.appendTurn({ session, turnId: 't', messages: [{ role: 'user', content: 'x' }] });
      const { window, knobs } = await client.status({ session });
      const refused = await failure(client.configureTenant({ policy: { contextWindow: -1 } }));
      const stored = await client.tenantPolicy();
      await client.configureTenant({ policy: {} });
      return [before, policyVersion, window, knobs, refused, stored];
    },
    expected: [
      { policy: {}, policyVersion: 0 },
      1,
      { tokens: 64_000 },
      {},
      invalidAt('policy.contextWindow'),
      { policy: { contextWindow: 64_000 }, policyVersion: 1 },
    ],
  },
];
