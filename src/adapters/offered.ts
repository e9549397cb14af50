/** The items that `callModelInputFilter` has stored in a session, by which `addItems` recognizes them. */
import { isDeepStrictEqual } from 'node:util';
import type { AgentInputItem } from '@openai/agents';

/** Number of runs at once whose items are remembered. */
const mostRuns = 50;

/** The items of a run at its last call of the model. */
interface Run {
  items: AgentInputItem[];
  isAdded: boolean;
}

export class Offered {
  private readonly runs = new Map<string, Run>();

  /** The items that the filter has stored in a run. */
  in(run: string): readonly AgentInputItem[] {
    return this.runs.get(run)?.items ?? [];
  }

  offer(run: string, items: AgentInputItem[]): void {
    this.runs.delete(run);
    this.runs.set(run, { items, isAdded: false });
    const [oldest] = this.runs.keys();
    if (this.runs.size > mostRuns && oldest !== undefined) this.runs.delete(oldest);
  }

  /**
   * Adds the items without the first ones that are the last ones of a run. `input`: how many items of its context a run adds
   * besides. Once all items of a run are added, the same items are others: a user may say the same again.
   */
  async add(
    items: readonly AgentInputItem[],
    input: { run: string; items: number } | null,
    append: (rest: readonly AgentInputItem[]) => Promise<unknown>,
  ): Promise<void> {
    const { run, count } = this.beginningOf(items);
    await append(items.slice(count));
    if (run !== null) run.isAdded = true;
    const named = input && this.runs.get(input.run);
    if (named && input.items + items.length >= named.items.length) named.isAdded = true;
  }

  private beginningOf(items: readonly AgentInputItem[]): { run: Run | null; count: number } {
    for (let count = items.length; count > 0; count--)
      for (const run of this.runs.values())
        if (!run.isAdded && count <= run.items.length && beginsWith(items, run.items.slice(-count)))
          return { run, count };
    return { run: null, count: 0 };
  }

  clear(): void {
    this.runs.clear();
  }
}

const beginsWith = (list: readonly AgentInputItem[], beginning: readonly AgentInputItem[]): boolean =>
  beginning.every((item, index) => isDeepStrictEqual(item, list[index]));

type OfSessions = Map<string, WeakRef<Offered>>;

const ofClients = new WeakMap<object, OfSessions>();

const unused = new FinalizationRegistry<{ sessions: OfSessions; session: string }>(
  ({ sessions, session }) => {
    // Another object of the session may have been made since.
    if (sessions.get(session)?.deref() === undefined) sessions.delete(session);
  },
);

/** The same for all objects of a session and a client, as a run may have the filter of another object than its session. */
export function offeredIn(client: object, session: string): Offered {
  const sessions: OfSessions = ofClients.get(client) ?? new Map<string, WeakRef<Offered>>();
  ofClients.set(client, sessions);
  const known = sessions.get(session)?.deref();
  if (known !== undefined) return known;
  const offered = new Offered();
  sessions.set(session, new WeakRef(offered));
  unused.register(offered, { sessions, session });
  return offered;
}
