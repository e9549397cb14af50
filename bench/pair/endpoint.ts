/** The model endpoint of both sides, with a record of when calls were running. */
import { startModelServer } from '../../test/support/model-server.js';
import { summarizer } from '../model-script.js';

export type Endpoint = Awaited<ReturnType<typeof startEndpoint>>;

export async function startEndpoint() {
  let latencyMs = 0;
  let spans: [from: number, to: number][] = [];
  const server = await startModelServer({
    script: async (request) => {
      const reply = await summarizer(latencyMs)(request);
      spans.push([request.at, Date.now()]);
      return reply;
    },
  });
  return {
    url: server.url,
    /** Forgets all calls; further ones take so long. */
    restart(ms: number): void {
      latencyMs = ms;
      spans = [];
      server.requests.length = 0;
    },
    calls: () => spans.length,
    /** Milliseconds of this stretch in which at least one call was running. */
    busyMs(from: number, to: number): number {
      let total = 0;
      let until = from;
      for (const [start, end] of spans.toSorted((a, b) => a[0] - b[0])) {
        const last = Math.min(end, to);
        total += Math.max(0, last - Math.max(start, until));
        until = Math.max(until, last);
      }
      return total;
    },
    close: () => server.close(),
  };
}
