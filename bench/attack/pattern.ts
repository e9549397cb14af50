/** Sessions with patterns that a backtracking engine would match for ever, on texts made for them. */
import { setTimeout as sleep } from 'node:timers/promises';
import { send, type Attack } from './target.js';

const patterns = ['a*a*a*a*b', '(?:a|a){10}(?:a|a){10}b', '(?:a?){30}a{30}b', '[^]*[^]*[^]*[^]*x', '(a+)+$'];
const text = 'a'.repeat(3_000);
const pauseMs = 250;

export const pattern: Attack = {
  description: `4 sessions a second whose pins or redaction match ${patterns.length} hostile patterns in 3,000 letters, each compacted`,
  async run(target, signal, note) {
    for (let n = 0; !signal.aborted; n++) {
      const session = `/v1/sessions/pattern-${n}`;
      const hostile = patterns[n % patterns.length]!;
      const policy = {
        ...{ contextWindow: 8_192, trigger: { messages: 6 }, keep: { messages: 2 } },
        ...(n % 2 === 0 ? { pins: [{ pattern: hostile }] } : { redact: { patterns: [hostile] } }),
      };
      const messages = Array.from({ length: 12 }, (_, index) => ({
        role: index % 2 === 0 ? 'user' : 'assistant',
        content: `${index} ${text}`,
      }));
      const turn = JSON.stringify({ turnId: 't-1', messages, policy });
      note(`append: ${await send(target, 'POST', `${session}/turns`, turn, signal)}`);
      note(`compact: ${await send(target, 'POST', `${session}/compact?wait=false`, undefined, signal)}`);
      await sleep(pauseMs, undefined, { signal }).catch(() => undefined);
    }
  },
};
