/**
 * Agents that append turn after turn over the HTTP API. A turn whose answer was lost is sent again until it is acknowledged.
 * After each turn they read their context and validate it like a provider.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { ChatMessage } from '../../src/conversation/message.js';
import { isFailure } from '../../src/errors.js';
import type { HttpPalimpsest } from '../../src/http-client/index.js';
import type { PolicyInput } from '../../src/policy/schema.js';
import type { SessionContext } from '../../src/contract/context.js';
import { acknowledged, erased, markerOf, markersIn, type Journal, type SessionJournal } from './journal.js';
import type { Random } from './random.js';
import type { Observations } from './observations.js';

/** Short windows and deadlines: a run of minutes sees hundreds of compactions, and every outage ends in a decision. */
export const chaosPolicy: PolicyInput = {
  contextWindow: 6_000,
  summary: { chunkTokens: 2_000, concurrency: 3, deadline: 30_000, retryAfterFailure: 2_000 },
  idleAfter: 15_000,
  retention: { digests: 60_000 },
};

/** Maximum number of concurrent sessions; with more, no agent forks. */
const mostSessions = 24;

const vocabulary =
  'ledger invoice retry queue commit branch schema window budget digest parcel orchard'.split(' ');
const syllables = 'bar den fol gri hul jas kem lor mav nis pel quo ras tiv vun zed'.split(' ');
/** Words from one marker of a text to the next, so that every chunk of it has a marker. */
const stretchWords = 60;

/** A turn of a session: a request, perhaps calls with their results, and an answer. */
export function turnOf(
  of: Pick<SessionJournal, 'tenant' | 'session' | 'incarnation'>,
  turn: number,
  random: Random,
): ChatMessage[] {
  let index = 0;
  const words = (count: number): string =>
    Array.from({ length: count }, () => random.pick(vocabulary)).join(' ');
  const name = (): string => Array.from({ length: 3 }, () => random.pick(syllables)).join('');
  const text = (what: string): string => {
    const marker = markerOf(of, turn, index++);
    const stretches = random.chance(0.05) ? 15 : random.between(1, 2);
    const said = Array.from(
      { length: stretches },
      () =>
        `${marker} case ${name()}-${random.between(1_000, 9_999)} ${words(random.between(20, stretchWords))}`,
    );
    return `${what} ${turn} about ${random.pick(vocabulary)} ${said.join(' ')}`;
  };
  const messages: ChatMessage[] = [{ role: 'user', content: text('request') }];
  if (random.chance(0.5)) {
    const calls = Array.from({ length: random.between(1, 3) }, (_, call) => ({
      id: `call_${turn}_${call}`,
      type: 'function' as const,
      function: {
        name: random.pick(['read_file', 'search']),
        arguments: JSON.stringify({ path: `src/${call}.ts` }),
      },
    }));
    messages.push({ role: 'assistant', content: null, tool_calls: calls });
    for (const { id } of calls) messages.push({ role: 'tool', tool_call_id: id, content: text('result') });
  }
  messages.push({ role: 'assistant', content: text('answer') });
  return messages;
}

export class Agent {
  private turn = 0;
  private stopping = false;
  readonly done: Promise<void>;

  constructor(
    private readonly client: HttpPalimpsest,
    private readonly entry: SessionJournal,
    private readonly journal: Journal,
    private readonly random: Random,
    private readonly seen: Observations,
    private readonly began: (agent: Agent) => void,
    private readonly pauseMs: number,
  ) {
    this.turn = entry.turns.length;
    // What an agent gives up for is noted by then.
    this.done = this.live().catch((error: unknown) => this.seen.violation('agent', String(error)));
  }

  stop(): void {
    this.stopping = true;
  }

  private async live(): Promise<void> {
    while (!this.stopping) {
      await this.takeTurn();
      await this.readContext();
      if (this.random.chance(0.05)) await this.lookUp();
      if (this.random.chance(0.015)) await this.fork();
      else if (this.random.chance(0.02)) await this.erase();
      await sleep(this.pauseMs * (0.5 + this.random.next()));
    }
  }

  /** Until it is acknowledged, also when the run is about to end. */
  private async takeTurn(): Promise<void> {
    const { entry, client } = this;
    const { session } = entry;
    const turn = ++this.turn;
    const turnId = `i${entry.incarnation}-turn-${turn}`;
    const messages = turnOf(entry, turn, this.random);
    const policy = entry.messages.length === 0 ? { policy: chaosPolicy } : {};
    const { fromSeq, throughSeq } = await this.insist('appendTurn', () =>
      client.appendTurn({ session, turnId, messages, ...policy }),
    );
    const expected = entry.messages.length + 1;
    if (fromSeq !== expected || throughSeq !== expected + messages.length - 1)
      this.seen.violation(
        'log',
        `${session}: ${turnId} was stored as ${fromSeq}–${throughSeq}, not from ${expected}`,
      );
    acknowledged(entry, turnId, messages, throughSeq);
  }

  private async readContext(): Promise<void> {
    const { entry, client, seen } = this;
    try {
      const context = await client.context({ session: entry.session });
      seen.contexts++;
      for (const problem of problemsOf(context, entry))
        seen.violation('context', `${entry.session}: ${problem}`);
    } catch (error) {
      seen.failed('context', error);
    }
  }

  /** What an agent searches becomes searchable, before it is forked, restored or erased. */
  private async lookUp(): Promise<void> {
    const { entry, client, seen, random } = this;
    await client
      .search({ session: entry.session, query: random.pick(vocabulary) })
      .catch((error: unknown) => seen.failed('search', error));
  }

  /** A new session with the log so far; it continues with another agent. */
  private async fork(): Promise<void> {
    const { entry, client, journal } = this;
    if (entry.turns.length < 2 || journal.living().length > mostSessions) return;
    const cut = this.random.pick(entry.turns);
    const to = `${entry.session}f${entry.turns.length}x${this.random.between(0, 9_999)}`;
    await this.insist('fork', () => client.fork({ session: entry.session, throughSeq: cut.throughSeq, to }));
    const inherited = {
      messages: entry.messages.slice(0, cut.throughSeq),
      turns: entry.turns.filter(({ throughSeq }) => throughSeq <= cut.throughSeq),
    };
    const begun = journal.begin(entry.tenant, to, inherited);
    // Its turns differ from those of its source.
    begun.incarnation = 100 * journal.all().length;
    const { random, seen, began, pauseMs } = this;
    began(new Agent(client, begun, journal, random.fork(), seen, began, pauseMs));
  }

  private async erase(): Promise<void> {
    const { entry, client } = this;
    await this.insist('erase', async () => {
      try {
        await client.erase({ session: entry.session });
      } catch (error) {
        // An earlier try has erased it, and its answer was lost.
        if (!isFailure(error, 'Store.SessionNotFound')) throw error;
      }
    });
    erased(entry);
    this.turn = 0;
    this.seen.erasures++;
    if (this.random.chance(0.3)) this.moveOn();
  }

  /** Leaves the erased session for good; another agent talks in a new one. */
  private moveOn(): void {
    this.stopping = true;
    const { client, entry, journal, random, seen, began, pauseMs } = this;
    const begun = journal.begin(entry.tenant, `n${journal.all().length}`);
    began(new Agent(client, begun, journal, random.fork(), seen, began, pauseMs));
  }

  private async insist<T>(what: string, attempt: () => Promise<T>): Promise<T> {
    const since = Date.now();
    for (let told = false; ;) {
      try {
        return await attempt();
      } catch (error) {
        this.seen.failed(what, error);
        if (!told && this.seen.calm() && Date.now() - Math.max(since, this.seen.calmSince) > 60_000) {
          told = true;
          this.seen.violation(
            'stuck',
            `${this.entry.session}: ${what} fails for a minute without any fault: ${String(error)}`,
          );
          throw error;
        }
        await sleep(200 + 300 * this.random.next());
      }
    }
  }
}

/** Violations that a provider, or a reader who knows the log, would find. */
function problemsOf(context: SessionContext, entry: SessionJournal): string[] {
  const problems: string[] = [];
  const { messages, tokens, budget } = context;
  if (tokens > budget) problems.push(`${tokens} tokens in a budget of ${budget}`);
  const open = new Set<string>();
  for (const [index, message] of messages.entries()) {
    if (message.role === 'tool') {
      if (!open.delete(message.tool_call_id ?? '')) problems.push(`message ${index} answers no open call`);
    } else if (open.size > 0) {
      problems.push(`message ${index} stands between a call and its result`);
      open.clear();
    }
    if (message.role === 'assistant') for (const { id } of message.tool_calls ?? []) open.add(id);
  }
  if (open.size > 0) problems.push(`${open.size} calls are unanswered`);
  const newest = entry.messages.findLast((text) => text.startsWith('{"role":"user"'));
  if (newest !== undefined && !messages.some((message) => JSON.stringify(message) === newest)) {
    const whole = JSON.parse(newest) as { content: string };
    // Neighbours of one role may be joined into one message.
    if (!JSON.stringify(messages).includes(JSON.stringify(whole.content).slice(1, -1)))
      problems.push('the newest user message is missing');
  }
  const own = new Set(entry.messages.flatMap(markersIn));
  const foreign = markersIn(JSON.stringify(messages)).filter((marker) => !own.has(marker));
  if (foreign.length > 0) problems.push(`holds ${foreign[0]} of another session or an erased one`);
  return problems;
}
