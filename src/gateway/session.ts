/** The session of a request: what it stores, and the messages that go to the model in place of the client's. */
import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { SyncRequest } from '../contract/sync.js';
import type { Json } from '../conversation/message.js';
import { invalid, isFailure, PalimpsestError } from '../errors.js';
import { itemDigest } from '../formats/list-digest.js';
import type { SyncedSizes } from '../library/sync.js';
import { policyOf } from '../policy/layers.js';
import type { PolicyInput } from '../policy/schema.js';
import { asCaller, type Lane } from '../store/connection/places.js';
import { counterFor, type TokenCounter, tokenizerForModel } from '../tokens/counter.js';
import { countOverhead } from '../tokens/message.js';
import { readUsage, type ReportedUsage, type UsageReport } from '../tokens/reported-usage.js';
import { windowOfModel } from '../tokens/windows.js';
import type { Answers, Append, Kept } from './answers.js';
import type { Protocol, ReadRequest } from './protocols/protocol.js';
import { namedInLog, References } from './references.js';
import type { GatewayClient } from './settings.js';
import { type EditMode, storeList } from './stored-list.js';

export interface Caller {
  tenant: string;
  session: string;
  /** What a list means that lacks messages of the session. Undefined: `fork` if both have their first message in common. */
  onEdit: EditMode | undefined;
  client: GatewayClient;
  /** Aborted when the client has gone. */
  signal: AbortSignal;
}

/** A request whose list is stored. */
export interface Begun {
  /** The session, or the fork that continues it. */
  session: string;
  /** Messages in place of the client's list; null: the list goes to the model as it is. */
  messages: Json[] | null;
  /** Tokens of the messages, and the maximum of them. */
  tokens: number;
  limit: number;
  /** The same with messages of at most so many tokens. Null if they cannot be so few. */
  within(tokens: number): Promise<Shortened | null>;
  /** Tokens of a value as JSON, by the session's tokenizer. */
  count(value: Json): number;
  /** Runs work for the caller. */
  as<T>(lane: Lane, work: () => Promise<T>): Promise<T>;
  /**
   * Keeps the answer, until the next request has it. Resolves when the client may have its end: if the client can name the answer,
   * it is in the log then, or the store took too long.
   */
  answered(answer: Answered): Promise<void>;
  /** The provider found messages of so many tokens too long: returns the maximum for this and later requests of the session. */
  tooLong(tokens: number): number;
}

export interface Shortened extends Begun {
  messages: Json[];
}

interface Answered extends Pick<Kept, 'messages' | 'isPart' | 'characters'> {
  /** The provider's report for the request with these messages. */
  usage: UsageReport | null;
  /** Whether the client can name the items by their ids, instead of repeating them. */
  canBeNamed: boolean;
}

/** What a session's policy says of the request besides the conversation, in tokens. */
interface Declared {
  /** That of the session's tokenizer. */
  counter: TokenCounter;
  overhead: number;
  reserved: number | null;
}

/** Budgets are multiples of it: with each budget, the context begins otherwise, and no cache of a provider serves it. */
const budgetStep = 512;
const declaredForMs = 300_000;
/** Share of a context that the provider found too long that the next ones may have, and for how long this is known. */
const shareOfTooLong = 0.8;
const tooLongForMs = 3_600_000;
/** Share of a budget that stays free: providers count kinds of text differently, and a calibration knows their average. */
const margin = 0.02;

export class Sessions {
  readonly #references = new References();
  readonly #sizes = new LRUCache<string, number>({ max: 1_000 });
  readonly #declared = new LRUCache<string, Declared>({ max: 10_000, ttl: declaredForMs });
  /** Context tokens that a session may have, after a refusal of the provider. */
  readonly #most = new LRUCache<string, number>({ max: 10_000, ttl: tooLongForMs });

  constructor(
    private readonly answers: Answers,
    private readonly timeoutMs: number,
  ) {}

  /**
   * Stores what is new in the list, and returns the messages for the model. `tools`: the tools that may be added to the request.
   * Throws every failure of `sync`, and `Store.Unavailable` if it takes too long.
   */
  async begin(
    protocol: Protocol,
    request: ReadRequest,
    tools: readonly Json[],
    caller: Caller,
  ): Promise<Begun> {
    const { tenant, session, onEdit, client, signal } = caller;
    if (request.heldByProvider !== null)
      throw invalid(
        'The provider holds the messages of this conversation, so that Palimpsest cannot replace them.',
        request.heldByProvider,
        'Send the whole conversation in `input`, or leave out the header x-palimpsest-session.',
      );
    const key = JSON.stringify([tenant, session]);
    const as = <T>(lane: Lane, work: () => Promise<T>): Promise<T> =>
      asCaller({ tenant, lane, signal }, () => inTime(work(), this.timeoutMs));
    const list = await this.#references.resolved(key, request.list, () =>
      as('hot', () => namedInLog(session, client)),
    );
    const continuing = await this.answers.continuing(key, list);
    const isFirst = list.length === 1 ? { at: new Date().toISOString() } : {};
    const asked = {
      ...{ session, messages: list as SyncRequest['messages'], format: protocol.format },
      ...(continuing?.request ?? isFirst),
    };
    const counterOfModel = counterFor(tokenizerForModel(request.model));
    const policies = policiesFor(request, this.#sizeOf([...request.beside, ...tools], counterOfModel));
    const found = await as('hot', () => storeList(client, protocol, { ...asked, policies, onEdit }));
    continuing?.stored();
    const declared = await this.#declaredOf(found, caller, as);
    const { counter } = declared;
    const bare = this.#sizeOf(request.beside, counter);
    const overhead = bare + this.#sizeOf(tools, counter);
    const limit = this.#limit(found, request, overhead, declared, tenant);
    const fits = found.context.tokens <= limit;
    const read = (shape: { budget?: number }) =>
      as('hot', () => client.context({ session: found.session, format: protocol.format, ...shape }));
    // The context of the session's own budget, if the smaller one of this request cannot be reached.
    const context = fits
      ? found.context
      : ((await read({ budget: limit }).catch(unreachable)) ?? (await read({})));
    const isUnchanged = fits && found.unchanged;
    const begunWith = (tokens: number, limit: number, beside: number): Omit<Begun, 'messages'> => ({
      session: found.session,
      tokens,
      limit,
      within: async (budget) => {
        const fewer = await read({ budget }).catch((error: unknown) => {
          if (isFailure(error)) return null;
          throw error;
        });
        return (
          fewer && {
            ...begunWith(fewer.tokens, budget, overhead),
            messages: fewer.messages as unknown as Json[],
          }
        );
      },
      count: (value) => counter.count(JSON.stringify(value)),
      as,
      answered: async ({ canBeNamed, ...answer }) => {
        const { session, throughSeq } = found;
        const after = { session, throughSeq, items: list.length, last: itemDigest(list.at(-1) ?? null) };
        const usage = usageOf(answer.usage, tokens + beside);
        this.#references.answered(key, answer.messages);
        const kept = { ...answer, ...after, protocol, usage };
        if (!canBeNamed) return this.answers.keep(key, kept, appendFor(caller));
        const storing = this.answers.storeNow(key, kept, appendFor(caller), syncFor(caller, protocol, list));
        await inTime(storing, this.timeoutMs).catch(() => undefined);
      },
      tooLong: (refused) => {
        const most = Math.max(1, Math.floor(shareOfTooLong * (refused + beside) - overhead));
        this.#most.set(JSON.stringify([tenant, found.session]), most);
        return most;
      },
    });
    return {
      ...begunWith(context.tokens, limit, isUnchanged ? bare : overhead),
      messages: isUnchanged ? null : (context.messages as Json[]),
    };
  }

  #sizeOf(beside: readonly Json[], counter: TokenCounter): number {
    const text = JSON.stringify(beside);
    const hash = createHash('sha256').update(counter.name).update(text).digest('base64');
    const known = this.#sizes.get(hash);
    if (known !== undefined) return known;
    const size = text === '[]' ? 0 : counter.count(text);
    this.#sizes.set(hash, size);
    return size;
  }

  async #declaredOf(
    { session, stored }: SyncedSizes,
    { tenant, client }: Caller,
    as: Begun['as'],
  ): Promise<Declared> {
    const key = JSON.stringify([tenant, session]);
    const known = stored?.fromSeq === 1 ? undefined : this.#declared.get(key);
    if (known !== undefined) return known;
    const declared = declaredBy((await as('hot', () => client.policy({ session }))).policy);
    this.#declared.set(key, declared);
    return declared;
  }

  /** Context tokens for which this request leaves room. */
  #limit(
    { session, context }: SyncedSizes,
    { maxOutput = 0 }: ReadRequest,
    overhead: number,
    declared: Declared,
    tenant: string,
  ): number {
    const { budget, window } = context;
    const reserved = declared.reserved ?? Math.min(4_096, Math.floor(window / 8));
    const output = Math.min(maxOutput, Math.floor(window / 2));
    const more = Math.max(0, overhead - declared.overhead) + Math.max(0, output - reserved);
    const steps = Math.ceil(more / budgetStep) * budgetStep;
    const room = Math.max(Math.floor((1 - margin) * budget) - steps, Math.floor(budget / 4));
    return Math.min(room, this.#most.get(JSON.stringify([tenant, session])) ?? room);
  }
}

function declaredBy(policy: PolicyInput): Declared {
  const { overhead, tokenizer } = policyOf({ session: policy });
  // A counter of the library's caller is not here.
  const counter = counterFor(tokenizer.startsWith('custom:') ? tokenizerForModel(policy.model) : tokenizer);
  return {
    ...{ counter, overhead: countOverhead(overhead, counter) },
    reserved: policy.reservedOutputTokens ?? null,
  };
}

/** Policies of a new session: the next one is for windows that are too small for the one before. */
function policiesFor({ model, maxOutput }: ReadRequest, overhead: number): PolicyInput[] {
  const named = model === undefined ? {} : { model };
  const window = windowOfModel(model ?? '');
  const reserved =
    maxOutput === undefined || window === undefined
      ? {}
      : { reservedOutputTokens: Math.min(maxOutput, Math.floor(window / 4)) };
  return [{ ...named, ...reserved, overhead: Math.ceil(overhead / budgetStep) * budgetStep }, named];
}

/** The provider's report, with our count of the same request. Null if it reported nothing that is known. */
function usageOf(report: UsageReport | null, countedTokens: number): ReportedUsage | null {
  try {
    const read = report && readUsage(report);
    return read && { ...read, countedTokens };
  } catch (error) {
    if (isFailure(error, 'Input.Invalid')) return null;
    throw error;
  }
}

/** It lives as long as an answer waits, and holds nothing else of the request. */
function appendFor({ tenant, client }: Caller): Append {
  return (turn) => asCaller({ tenant, lane: 'hot' }, () => client.appendTurn(turn));
}

/** Stores an answer as `sync` stores the next list, so that this list continues one that is known. */
function syncFor({ tenant, client, onEdit = 'fork' }: Caller, { format }: Protocol, list: Json[]): Append {
  return ({ session, messages: answer, at, usage }) => {
    const messages = [...list, ...(answer as Json[])] as SyncRequest['messages'];
    const turn = { session, messages, at, format, onEdit, ...(usage === undefined ? {} : { usage }) };
    return asCaller({ tenant, lane: 'hot' }, () => client.syncSizes(turn));
  };
}

function unreachable(error: unknown): null {
  if (isFailure(error, 'Budget.Unreachable')) return null;
  throw error;
}

async function inTime<T>(work: Promise<T>, timeoutMs: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new PalimpsestError('Store.Unavailable', `the session took longer than ${timeoutMs} ms`)),
      timeoutMs,
    );
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
    work.catch(() => undefined);
  }
}
