/** Searches of a long session, more of them concurrently than the API has database connections. */
import { agentTurn } from '../conversation.js';
import { send, type Attack } from './target.js';

const lanes = 60;
const turns = 60;
const copies = 40;

export const searches: Attack = {
  description: `${lanes} searches at once, without a pause, of a session of ${(turns * copies * 6).toLocaleString('en-US')} messages; every third caller goes away after 100 ms`,
  async run(target, signal, note) {
    const session = '/v1/sessions/searched';
    for (let turn = 0; turn < turns && !signal.aborted; turn++) {
      const messages = Array.from({ length: copies }, (_, copy) =>
        agentTurn(200, turn * copies + copy),
      ).flat();
      const body = JSON.stringify({ turnId: `t-${turn}`, messages, policy: { contextWindow: 1_000_000 } });
      note(`append: ${await send(target, 'POST', `${session}/turns`, body, signal)}`);
    }
    const lane = async (number: number) => {
      for (let n = number; !signal.aborted; n += lanes) {
        const body = JSON.stringify({
          query: `worker ${n}`,
          mode: n % 2 === 0 ? 'words' : 'substring',
          limit: 50,
        });
        const patience = n % 3 === 0 ? AbortSignal.any([signal, AbortSignal.timeout(100)]) : signal;
        const came = await send(target, 'POST', `${session}/search`, body, patience);
        note(`search: ${patience.aborted && !signal.aborted ? 'gone' : came}`);
      }
    };
    await Promise.all(Array.from({ length: lanes }, (_, number) => lane(number)));
  },
};
