/** Turns with the largest allowed body: of a few long messages, and of very many tiny ones. */
import { send, type Attack } from './target.js';

const megabyte = 1024 * 1024;
const bytes = 31 * megabyte;

/** Bodies sent at the same time. */
const lanes = 2;

export const body: Attack = {
  description: `${lanes} connections post bodies of 31 MiB without a pause: long texts, and as many tiny messages as fit`,
  async run(target, signal, note) {
    const shapes = [longTexts(), tinyMessages()];
    const lane = async (first: number) => {
      for (let n = first; !signal.aborted; n += lanes) {
        const { name, messages } = shapes[n % shapes.length]!;
        const text = `{"turnId":"t-${n}","messages":${messages}}`;
        note(`${name}: ${await send(target, 'POST', `/v1/sessions/large-${n}/turns`, text, signal)}`);
      }
    };
    await Promise.all(Array.from({ length: lanes }, (_, index) => lane(index)));
  },
};

function longTexts(): { name: string; messages: string } {
  const text = 'The retry queue in src/queue/worker-17.ts drops 4096 messages after 180ms. '.repeat(13_600);
  const message = JSON.stringify({ role: 'user', content: text });
  return { name: 'messages of 1 MB', messages: `[${Array<string>(30).fill(message).join(',')}]` };
}

function tinyMessages(): { name: string; messages: string } {
  const message = '{"role":"user","content":"hi"}';
  const count = Math.floor(bytes / (message.length + 1));
  return {
    name: `${count.toLocaleString('en-US')} tiny messages`,
    messages: `[${Array<string>(count).fill(message).join(',')}]`,
  };
}
