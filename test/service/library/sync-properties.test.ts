/** `sync` for callers that do anything with their list: every message is stored once, in order, and every context fits. */
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Synced, SyncRequest } from '../../../src/contract/sync.js';
import type { Json } from '../../../src/conversation/message.js';
import type { Palimpsest } from '../../../src/library/palimpsest.js';
import { sized } from '../../support/size.js';
import { startStack, type Stack } from '../../support/stack.js';
import { storedItems } from '../../support/sessions.js';

let stack: Stack;
let palimpsest: Palimpsest;
let elsewhere: Palimpsest;

beforeAll(async () => {
  stack = await startStack();
  ({ palimpsest } = stack);
  elsewhere = await stack.elsewhere();
});

afterAll(() => stack.stop());

type Item = { [field: string]: Json };

/** The messages of one turn; few texts, so that many turns are equal. */
const turn = fc
  .record({ question: fc.constantFrom('ok', 'Go on.', 'Why?'), calls: fc.integer({ min: 0, max: 3 }) })
  .map(({ question, calls }): Item[] => [
    { role: 'user', content: `${question} ${'word '.repeat(200)}` },
    ...(calls === 0
      ? []
      : [
          {
            ...{ role: 'assistant', content: null },
            tool_calls: Array.from({ length: calls }, (_, index) => ({
              ...{ id: `call-${index}`, type: 'function' },
              function: { name: 'look', arguments: '{"order":1}' },
            })),
          },
          ...Array.from({ length: calls }, (_, index) => ({
            ...{ role: 'tool', tool_call_id: `call-${index}` },
            content: `Shipped. ${'detail '.repeat(100)}`,
          })),
        ]),
    { role: 'assistant', content: 'Done.' },
  ]);

const policy = { contextWindow: 4_000 };

const replayed = (session: string): Promise<Json[]> => storedItems(palimpsest, session);

/** An application that holds a list, and a record of what was said. */
class Application {
  said: Item[] = [];
  list: Item[] = [];
  /** The process that answers it, each with its own memory of the session. */
  at: Palimpsest = palimpsest;

  constructor(private readonly session: string) {}

  async synchronized(): Promise<Synced<Item>> {
    const messages = this.list as SyncRequest['messages'];
    const request = { session: this.session, messages, policy, onEdit: 'fork' as const };
    const synced = await this.at.sync<Item>(request);
    expect(synced.throughSeq).toBe(this.said.length);
    expect(synced.context.tokens).toBeLessThanOrEqual(policy.contextWindow);
    return synced;
  }

  async says(messages: readonly Item[]): Promise<Synced<Item>> {
    this.said = [...this.said, ...messages];
    this.list = [...this.list, ...messages];
    return this.synchronized();
  }

  /** Goes back to before one of the newest questions. Returns false if the list has too few. */
  goesBack(questions: number): boolean {
    const begin = (items: readonly Item[]) =>
      items.flatMap(({ role }, index) => (role === 'user' ? [index] : [])).at(-questions) ?? 0;
    if (this.list.filter(({ role }) => role === 'user').length < questions + 3) return false;
    this.list = this.list.slice(0, begin(this.list));
    this.said = this.said.slice(0, begin(this.said));
    return true;
  }
}

/** What happens between two calls. */
type Event = 'nothing' | 'again' | 'replaced' | 'restarted' | 'read' | 'compacted';
const events = fc.constantFrom<Event>('nothing', 'again', 'replaced', 'restarted', 'read', 'compacted');
const process = fc.integer({ min: 0, max: 1 });
const step = fc.record({ turn, event: events, process, parts: fc.integer({ min: 1, max: 6 }) });

test('a list that only grew has the sizes that its context has', async () => {
  let sessions = 0;
  let unread = 0;
  let generations = 0;
  const grows = fc.record({ turn, event: events, process, isConfigured: fc.boolean() });
  await fc.assert(
    fc.asyncProperty(fc.array(grows, { minLength: 10, maxLength: 16 }), async (steps) => {
      const session = `sizes-${sessions++}`;
      let list: Item[] = [];
      for (const { turn: messages, event, process: number, isConfigured } of steps) {
        const at = [palimpsest, elsewhere][number]!;
        list = [...list, ...messages];
        const request = { session, messages: list as SyncRequest['messages'], policy };
        const { context: sizes, ...grown } = await at.syncSizes(request);
        const { context, ...read } = await at.sync<Item>(request);
        expect(read).toMatchObject({ known: list.length, stored: null, throughSeq: grown.throughSeq });
        const isRead = sizes.messages !== undefined;
        unread += Number(!isRead);
        // A compaction may have come between both calls.
        if (context.generation === 0 && !isRead) {
          const { tokens, budget, window } = context;
          expect({ ...sizes, unchanged: grown.unchanged }).toEqual({
            ...{ tokens, budget, window, unchanged: read.unchanged },
          });
        }
        generations = Math.max(generations, context.generation);
        if (isConfigured) await palimpsest.configure({ session, policy: { contextWindow: 3_900 } });
        if (event === 'replaced') list = context.messages;
        if (event === 'compacted') await palimpsest.settled({ session });
      }
    }),
    { numRuns: sized(5, 20) },
  );
  expect(unread).toBeGreaterThan(0);
  expect(generations).toBeGreaterThan(0);
});

test('every message is stored once, in order', async () => {
  let sessions = 0;
  let generations = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 8, maxLength: 16 }), async (steps) => {
      const session = `any-${sessions++}`;
      const application = new Application(session);
      for (const { turn: messages, event, process: number, parts } of steps) {
        application.at = [palimpsest, elsewhere][number]!;
        for (let from = 0; from < messages.length; from += parts) {
          const { edited, context } = await application.says(messages.slice(from, from + parts));
          expect(edited).toBeNull();
          if (event === 'again') expect((await application.synchronized()).stored).toBeNull();
          if (event === 'replaced') application.list = context.messages;
        }
        if (event === 'compacted') await palimpsest.settled({ session });
        if (event === 'restarted')
          application.list = (await application.at.sync<Item>({ session, messages: [] })).context.messages;
        if (event === 'read') application.list = (await palimpsest.context<Item>({ session })).messages;
      }
      expect(await replayed(session)).toEqual(application.said);
      generations += (await palimpsest.status({ session })).generation;
    }),
    { numRuns: sized(5, 20) },
  );
  expect(generations).toBeGreaterThan(0);
});

test('a caller that goes back goes on in a fork, which has every message once', async () => {
  let sessions = 0;
  let forks = 0;
  const back = fc.record({ turn, event: events, process, questions: fc.integer({ min: 0, max: 2 }) });
  await fc.assert(
    fc.asyncProperty(fc.array(back, { minLength: 10, maxLength: 16 }), async (steps) => {
      const session = `back-${sessions++}`;
      const application = new Application(session);
      let inUse = session;
      for (const { turn: messages, event, process: number, questions } of steps) {
        application.at = [palimpsest, elsewhere][number]!;
        const isBack = questions > 0 && application.goesBack(questions);
        // The same question again would be the list that the session has.
        const [question, ...rest] = messages;
        const other = isBack
          ? [{ ...question, content: `Again, ${forks}. ${String(question?.content)}` }]
          : [question!];
        const synced = await application.says([...other, ...rest]);
        expect(synced.edited !== null).toBe(isBack);
        expect(synced.session === inUse).toBe(!isBack);
        inUse = synced.session;
        forks += Number(isBack);
        if (event === 'again') expect((await application.synchronized()).stored).toBeNull();
        if (event === 'compacted') await palimpsest.settled({ session: inUse });
        if (event === 'replaced' || event === 'restarted')
          application.list = (await palimpsest.sync<Item>({ session, messages: [] })).context.messages;
        if (event === 'read')
          application.list = (await palimpsest.context<Item>({ session: inUse })).messages;
      }
      expect(await replayed(inUse)).toEqual(application.said);
    }),
    { numRuns: sized(5, 20) },
  );
  expect(forks).toBeGreaterThan(0);
});
