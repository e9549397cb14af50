/** `palimpsest/openai-agents`: sessions for OpenAI's Agents SDK whose history fits the model's window. */
import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import {
  type AgentInputItem,
  type CallModelInputFilter,
  OpenAIChatCompletionsModel,
  type Session,
  tool,
} from '@openai/agents';
import type { PalimpsestClient } from '../contract/client.js';
import { callRecoveryTool, recoveryTools } from '../contract/recovery-tools.js';
import type { Synced, SyncRequest } from '../contract/sync.js';
import { continuationId } from '../contract/continuation.js';
import { afterOthers, inTurn } from '../contention.js';
import { invalid, isFailure, PalimpsestError } from '../errors.js';
import { heldContext, type HeldRequest, isEdited } from './held.js';
import { type Offered, offeredIn } from './offered.js';
import { checkAdapterOptions, optionRules, policyOfAgent } from './options.js';

export interface PalimpsestSessionOptions {
  /** `Palimpsest` or `HttpPalimpsest`. */
  client: PalimpsestClient;
  /** Id of the session. */
  session: string;
  /** Policy of a new session, for instance `{ model: 'gpt-5' }`. An existing session keeps its policy. */
  policy?: SyncRequest['policy'];
  /**
   * Whether the agent has the session's `recoveryTools`, which a new session then counts; otherwise the context does not name
   * them. @default false
   */
  recoveryTools?: boolean;
}

/** An item of the Responses API. */
interface ResponsesItem {
  id?: string;
  role?: string;
}

/** Number of times that other calls may move the session first. */
const attempts = 20;

/**
 * A session of the Agents SDK. Its history is the context: it fits the budget, and every item that was ever added stays in the
 * log. Items of the context are of type `unknown`, which the SDK sends to the Responses API unchanged.
 *
 * @example
 * const session = new PalimpsestSession({ client, session: 's-1', policy: { model: 'gpt-5' } });
 * await run(agent, 'Hello', { session, callModelInputFilter: session.callModelInputFilter });
 */
export class PalimpsestSession implements Session {
  private readonly client: PalimpsestClient;
  private readonly session: string;
  private readonly policy: NonNullable<SyncRequest['policy']>;
  /** The items that the filters of all objects of this session have stored. */
  private readonly offered: Offered;

  constructor(options: PalimpsestSessionOptions) {
    checkAdapterOptions(options, rules);
    const { client, session, policy, recoveryTools: hasTools = false } = options;
    this.client = client;
    this.session = session;
    this.policy = policyOfAgent(policy, hasTools);
    this.offered = offeredIn(client, session);
  }

  getSessionId(): Promise<string> {
    return Promise.resolve(this.session);
  }

  /**
   * The id with which the client's methods reach the items that the session has now. After `popItem` and `clearSession` it is that
   * of the fork in which the session goes on.
   */
  async sessionInUse(): Promise<string> {
    return (await this.present())?.session ?? this.session;
  }

  async getItems(limit?: number): Promise<AgentInputItem[]> {
    const items = wrapped(await this.present());
    if (limit === undefined) return items;
    return limit > 0 ? items.slice(-limit) : [];
  }

  async addItems(items: AgentInputItem[]): Promise<void> {
    checkItems(items);
    const added = items.filter((item) => !isOfContext(item)).map(storable);
    // The SDK adds the input of a run as the filter has answered it.
    const run = markIn(items);
    const input = run === undefined ? null : { run, items: items.length - added.length };
    await this.inTurn(() => this.offered.add(added, input, (rest) => this.append(rest)));
  }

  /**
   * Removes the last item from the session and returns it; undefined if there is none. The session goes on in a fork without
   * the item. The log that has it stays stored under its own id.
   */
  popItem(): Promise<AgentInputItem | undefined> {
    return this.inTurn(() => this.pop());
  }

  private async pop(): Promise<AgentInputItem | undefined> {
    for (let attempt = 1; ; attempt++) {
      const { session, throughSeq: lastSeq } = (await this.present()) ?? { session: '', throughSeq: 0 };
      if (lastSeq === 0) return undefined;
      const { messages } = await this.client.expand({ session, fromSeq: lastSeq, limit: 1 });
      const items = messages.flatMap(({ native }) => (native?.items ?? []) as unknown as AgentInputItem[]);
      // A response is one message of the log, with several items.
      if (await this.move(session, { lastSeq, throughSeq: lastSeq - 1, rest: items.slice(0, -1) }, attempt))
        return items.at(-1);
    }
  }

  /** The session goes on in an empty fork. To delete what is stored, use `erase` of the client. */
  clearSession(): Promise<void> {
    return this.inTurn(async () => {
      for (let attempt = 1; ; attempt++) {
        const present = await this.present();
        if (present === null) return;
        const { session, throughSeq: lastSeq } = present;
        if (await this.move(session, { lastSeq, throughSeq: 0, rest: [] }, attempt)) return;
      }
    });
  }

  /**
   * For the option of the same name of a run: stores the run's items before each call of the model, and replaces them by the
   * context, so that a run of any length fits the window.
   */
  readonly callModelInputFilter: CallModelInputFilter = async ({ modelData, agent }) => {
    if (agent.model instanceof OpenAIChatCompletionsModel) throw otherApi();
    const input = modelData.input.filter((item) => !isInstructions(item));
    const made = input.filter((item) => !isOfContext(item)).map(storable);
    const run = runOf(input, made);
    const synced = await this.inTurn(() =>
      this.store(input.map(storable)).catch(async (error: unknown) => {
        // Another run has added items, or the history or items of a handoff were cut on their way here.
        if (!isFailure(error, 'Store.ListEdited') || hasLostMarks(input)) throw error;
        return this.append(missingIn(this.offered.in(run), made));
      }),
    );
    this.offered.offer(run, made);
    return { ...modelData, input: wrapped(synced, run) };
  };

  /** The tools `get_tool_response`, `search_history` and `expand_history`, with which the agent's model reads the originals. */
  readonly recoveryTools = recoveryTools.map(({ function: { name, description, parameters } }) =>
    tool({
      name,
      description,
      strict: false,
      parameters: { ...parameters, required: parameters.required ?? [], additionalProperties: true },
      execute: async (input) => callRecoveryTool(this.client, await this.sessionInUse(), name, input),
    }),
  );

  private inTurn<Result>(call: () => Promise<Result>): Promise<Result> {
    return inTurn(this.client, this.session, call);
  }

  /** The context, or null for a session that does not exist. */
  private present(): Promise<Synced<ResponsesItem, string> | null> {
    return heldContext<ResponsesItem, string>(this.client, this.request());
  }

  private store(
    messages: readonly (AgentInputItem | ResponsesItem)[],
    expected: Pick<SyncRequest, 'expectedSession'> = {},
  ): Promise<Synced<ResponsesItem, string>> {
    return this.client.sync<ResponsesItem, string>({ ...this.request(), ...expected, messages });
  }

  private request(): HeldRequest {
    const { session, policy } = this;
    return { session, format: 'openai-agents', policy };
  }

  /** Stores items after the whole log, whoever else adds to it. */
  private append(items: readonly AgentInputItem[]): Promise<Synced<ResponsesItem, string> | null> {
    if (items.length === 0) return this.present();
    return afterOthers(this.session, isEdited, async () => {
      const present = await this.present();
      if (present === null) return this.store(items);
      // Items that another call removes meanwhile must not be stored again.
      const { session: expectedSession, context } = present;
      return this.store([...context.messages, ...items], { expectedSession });
    });
  }

  /**
   * Moves the session to a fork that ends with `rest`. Returns false if another call has moved the session first, or has added to
   * it.
   */
  private async move(
    from: string,
    {
      lastSeq: expectedSeq,
      throughSeq,
      rest: messages,
    }: { lastSeq: number; throughSeq: number; rest: AgentInputItem[] },
    attempt: number,
  ): Promise<boolean> {
    const { client, session: continues } = this;
    const to = continuationId(continues, from, attempt);
    this.offered.clear();
    try {
      if (messages.length > 0) {
        await client.fork({ session: from, throughSeq, to });
        await client.appendTurn({ session: to, turnId: 'rest', messages, format: 'openai-agents' });
      }
      const { repeated } = await client.fork({ session: from, throughSeq, to, continues, expectedSeq });
      if (!repeated) return true;
      if (attempt < attempts) return false;
      throw new PalimpsestError('Store.StaleAppend', `other calls move session ${continues} all the time`);
    } catch (error) {
      const isTaken = isFailure(error, 'Input.Invalid') && error.path === 'to';
      if ((!isTaken && !isFailure(error, 'Store.StaleAppend')) || attempt === attempts) throw error;
      return false;
    }
  }
}

const rules = {
  client: optionRules.client('sync', 'fork', 'appendTurn', 'expand', 'search', 'toolResponse'),
  session: { ...optionRules.text, isRequired: true },
  policy: optionRules.object,
  recoveryTools: optionRules.flag,
};

/** JavaScript may give anything. */
function checkItems(items: unknown): void {
  if (!Array.isArray(items)) throw invalid('items must be an array of items', 'items');
  for (const [index, item] of items.entries())
    if (typeof item !== 'object' || item === null || Array.isArray(item))
      throw invalid(`items[${index}] must be an item, an object`, `items[${index}]`);
}

const otherApi = () =>
  invalid(
    "the agent's model uses the Chat Completions API, and the session has items of the Responses API",
    'model',
    'Use a model of the Responses API, or send the context in the format openai-chat with a loop of your own.',
  );

/**
 * Marks items of a context: those of one answer of `getItems`, and of its run, have the same mark. The SDK keeps the field in its
 * lists and sends it to no model.
 */
const mark = 'palimpsest';

type Marked = AgentInputItem & { [mark]?: string };

const isOfContext = (item: AgentInputItem): boolean => mark in item;

/** The SDK has read the items of a context from a saved run state, which keeps the fields that it knows. */
const hasLostMarks = ([first]: readonly AgentInputItem[]): boolean =>
  first?.type === 'unknown' && !isOfContext(first);

const markIn = (items: readonly Marked[]): string | undefined =>
  items.find((item) => isOfContext(item) && !isInstructions(item))?.[mark];

/** Identifies a run by the history that it was given; in a new session, by its first item. */
const runOf = (input: readonly AgentInputItem[], made: readonly AgentInputItem[]): string =>
  markIn(input) ??
  createHash('sha256')
    .update(JSON.stringify(made[0] ?? null))
    .digest('hex');

/** The items that are not among the others, which have the same order. */
function missingIn(others: readonly AgentInputItem[], items: readonly AgentInputItem[]): AgentInputItem[] {
  let from = 0;
  return items.filter((item) => {
    const found = others.findIndex((other, index) => index >= from && isDeepStrictEqual(other, item));
    if (found !== -1) from = found + 1;
    return found === -1;
  });
}

function wrapped(
  synced: Synced<ResponsesItem, string> | null,
  answer: string = crypto.randomUUID(),
): AgentInputItem[] {
  if (synced === null) return [];
  const { messages, system } = synced.context;
  const items = messages.map((item) => wrap(item, answer));
  return system === undefined ? items : [wrap({ role: 'system', content: system }, instructions), ...items];
}

function wrap(item: ResponsesItem & { content?: string }, answer: string): AgentInputItem {
  const wrapper = { type: 'unknown' as const, id: item.id, providerData: item, [mark]: answer };
  return wrapper;
}

/** Marks the item of separate instructions, which is not one of the context's messages. */
const instructions = 'instructions';

const isInstructions = (item: Marked): boolean => item[mark] === instructions;

/** As the SDK stores items: without the ids of calls and without undefined values, and with binary data as URLs. */
function storable(item: AgentInputItem): AgentInputItem {
  const text = JSON.stringify(item, function (this: Record<string, unknown>, key: string, value: unknown) {
    if (key === 'id' && isCall(this)) return undefined;
    const own = this[key];
    if (!(own instanceof Uint8Array)) return value;
    const isTyped = key === 'data' || key === 'fileData';
    const type = isTyped && typeof this.mediaType === 'string' ? this.mediaType : 'text/plain';
    return `data:${type};base64,${Buffer.from(own).toString('base64')}`;
  });
  return JSON.parse(text) as AgentInputItem;
}

const isCall = ({ type, callId, call_id: id = callId }: Record<string, unknown>): boolean =>
  type === 'function_call' ||
  type === 'function_call_result' ||
  ((type === 'tool_search_call' || type === 'tool_search_output') && typeof id === 'string' && id !== '');
