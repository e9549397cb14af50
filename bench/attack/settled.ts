/** Waits of ten minutes for sessions that never settle; the callers disconnect at once. */
import { setTimeout as sleep } from 'node:timers/promises';
import { send, type Attack } from './target.js';

const sessions = 20;
const perSecond = 100;

export const settled: Attack = {
  description: `${perSecond} waits of ten minutes a second for ${sessions} sessions that are never at rest; every caller goes away after 200 ms`,
  async run(target, signal, note) {
    const messages = Array.from({ length: 12 }, (_, index) => ({
      role: index % 2 === 0 ? 'user' : 'assistant',
      content: `message ${index}`,
    }));
    // Looked at for a compaction in an hour, so until then something is still to be done.
    const policy = {
      contextWindow: 4_000,
      trigger: { messages: 8 },
      keep: { messages: 2 },
      debounceMs: 3_600_000,
    };
    for (let n = 0; n < sessions; n++) {
      const body = JSON.stringify({ turnId: 't', messages, policy });
      note(`append: ${await send(target, 'POST', `/v1/sessions/wait-${n}/turns`, body, signal)}`);
    }
    const open = new Set<Promise<void>>();
    for (let n = 0; !signal.aborted; n++) {
      const gone = AbortSignal.any([signal, AbortSignal.timeout(200)]);
      const path = `/v1/sessions/wait-${n % sessions}/settled?timeout=600000`;
      const one = send(target, 'GET', path, undefined, gone).then((came) =>
        note(`wait: ${gone.aborted && !signal.aborted ? 'gone' : came}`),
      );
      open.add(one);
      void one.finally(() => open.delete(one));
      await sleep(1_000 / perSecond, undefined, { signal }).catch(() => undefined);
    }
    await Promise.all(open);
  },
};
