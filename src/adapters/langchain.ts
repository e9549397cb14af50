/** `palimpsest/langchain`: middleware for `createAgent` of the package `langchain`. */
import {
  AIMessage,
  type BaseMessage,
  mapChatMessagesToStoredMessages,
  mapStoredMessagesToChatMessages,
  RemoveMessage,
  type StoredMessage,
} from '@langchain/core/messages';
import type { RunnableConfig } from '@langchain/core/runnables';
import { AsyncLocalStorageProviderSingleton } from '@langchain/core/singletons';
import { createMiddleware, tool } from 'langchain';
import { idFault } from '../contract/ids.js';
import { recoveryTools } from '../contract/recovery-tools.js';
import type { Synced, SyncRequest } from '../contract/sync.js';
import { invalid, isFailure, type PalimpsestError } from '../errors.js';
import type { ReportedUsage } from '../tokens/reported-usage.js';
import {
  type AdapterClient,
  type AdapterOptions,
  checkAdapterOptions,
  optionRules,
  recovered,
  remembered,
  sharedRules,
  syncRequest,
} from './options.js';

export interface MiddlewareOptions extends AdapterOptions {
  /** Session id. @default `configurable.thread_id` of the run */
  session?: string;
  /** Whether the agent gets the tools `get_tool_response`, `search_history` and `expand_history`. @default true */
  recoveryTools?: boolean;
}

const rules = { ...sharedRules, session: optionRules.text, recoveryTools: optionRules.flag };

/** The id of a `RemoveMessage` that removes all messages: `REMOVE_ALL_MESSAGES` of LangGraph. */
const allMessages = '__remove_all__';

/** Maximum number of threads whose last request is remembered. */
const mostThreads = 1_000;

/**
 * Stores every message of the agent in a session, and puts the session's context in place of the state's messages before each
 * model call: the state stays as small as the context, also in a checkpointer. Throws the failures of `sync`.
 *
 * @example
 * const agent = createAgent({ model, tools, checkpointer, middleware: [palimpsestMiddleware({ client })] });
 */
export function palimpsestMiddleware(options: MiddlewareOptions) {
  checkAdapterOptions(options, rules);
  const { client, recoveryTools: hasTools = true, memory = false, onSync } = options;
  const { onEdit, policy } = syncRequest(options, hasTools);
  /** Number of messages in the state at the last model call of each session: the answer to this call follows them. */
  const asked = new Map<string, number>();

  const synchronized = async (messages: BaseMessage[], config: ThreadConfig): Promise<BaseMessage[]> => {
    const session = sessionOf(options, config);
    const usage = usageOf(messages[asked.get(session) ?? messages.length]);
    asked.delete(session);
    const sync = async (list: BaseMessage[], edits: SyncRequest['onEdit']): Promise<BaseMessage[]> => {
      const request = {
        session,
        format: 'langchain' as const,
        messages: toStored(list),
        policy,
        onEdit: edits,
      };
      const synced = await client
        .sync<StoredMessage>({ ...request, ...(usage === undefined ? {} : { usage }) })
        .catch((error: unknown) => {
          throw list.length === 0 && isFailure(error, 'Store.SessionNotFound')
            ? withoutInput(session)
            : error;
        });
      onSync?.(synced);
      const context = fromStored(synced.context.messages);
      const others = onEdit === 'append' ? await takenForOthers(client, list, synced) : [];
      return others.length === 0 ? context : sync([...context, ...others], edits);
    };
    if (memory || onEdit === 'refuse') return sync(messages, onEdit);
    try {
      return await sync(messages, 'refuse');
    } catch (error) {
      if (!isFailure(error, 'Store.ListEdited')) throw error;
      const restored = isReturn() ? null : await restoredIfLost(client, session, messages, error.details);
      return restored ? sync(restored, 'append') : sync(messages, onEdit);
    }
  };

  return createMiddleware({
    name: 'PalimpsestMiddleware',
    tools: hasTools ? recoveryTools.map(({ function: of }) => recoveryTool(options, of)) : [],
    ...(memory && {
      async beforeAgent({ messages }: { messages: BaseMessage[] }, runtime: ThreadConfig) {
        const session = sessionOf(options, runtime);
        const earlier = fromStored(await remembered<StoredMessage>(client, session));
        checkNew(messages, earlier, session);
        return { messages: inPlaceOfAll(withEarlier(messages, earlier)) };
      },
    }),
    async beforeModel({ messages }, runtime) {
      if (placesAround(runtime).length > 0) return undefined;
      const context = await synchronized(messages, runtime);
      remember(asked, sessionOf(options, runtime), context.length);
      // A message in the result is streamed once more.
      if (isSame(messages, context)) return undefined;
      return { messages: inPlaceOfAll(context) };
    },
    // The graph around an agent keeps the messages that the agent has removed, so they stay in the agent's state too.
    async wrapModelCall(request, handler) {
      const { state, runtime } = request;
      if (placesAround(runtime).length === 0) return handler(request);
      const context = await synchronized(state.messages, runtime);
      remember(asked, sessionOf(options, runtime), state.messages.length);
      return handler({ ...request, messages: context });
    },
    async afterAgent({ messages }, runtime) {
      await synchronized(messages, runtime);
    },
  });
}

const inPlaceOfAll = (messages: BaseMessage[]): BaseMessage[] => [
  new RemoveMessage({ id: allMessages }),
  ...messages,
];

/** A message that was sent again, under the same id, is among the earlier ones already. */
function withEarlier(messages: BaseMessage[], earlier: BaseMessage[]): BaseMessage[] {
  const known = new Set(earlier.map(({ id }) => id));
  return [...earlier, ...messages.filter(({ id }) => id === undefined || !known.has(id))];
}

/** Whether a message has the id of another one, and says something else. The context may have other ids of calls in an answer. */
function isEdited(message: BaseMessage, earlier: BaseMessage[]): boolean {
  const before = message.id === undefined ? undefined : earlier.find(({ id }) => id === message.id);
  if (before === undefined) return false;
  const said = ({ type, content, text }: BaseMessage) =>
    JSON.stringify([type, type === 'human' ? content : text]);
  return said(before) !== said(message);
}

/** Refuses what is not new in the messages of a run whose memory is the session. A question may be sent again. */
function checkNew(messages: BaseMessage[], earlier: BaseMessage[], session: string): void {
  const known = new Set(earlier.map(({ id }) => id));
  if (messages.some(({ id, type }) => type === 'ai' && id !== undefined && known.has(id)))
    throw invalid(
      `the run begins with answers that session ${session} has already`,
      'memory',
      'If a checkpointer keeps the thread, leave out the option memory; otherwise give each run the new messages only.',
    );
  const index = messages.findIndex((message) => isEdited(message, earlier));
  if (index >= 0)
    throw invalid(
      `session ${session} has another message with the id ${messages[index]!.id}`,
      `messages[${index}].id`,
      'Give each new message an id of its own, or none.',
    );
}

const withoutInput = (session: string): PalimpsestError =>
  invalid(
    `the run has no messages, and there is no session ${session}`,
    'messages',
    'Call the agent with at least one message.',
  );

/** Whether the run was called with a checkpoint. LangGraph leaves it out of a node's configuration, but not of its metadata. */
function isReturn(): boolean {
  const config = AsyncLocalStorageProviderSingleton.getRunnableConfig() as RunnableConfig | undefined;
  return config?.metadata?.checkpoint_id !== undefined;
}

/**
 * The session's context and what is new in the state, if the checkpointer has lost the thread: the state begins with a message that
 * the session does not have, although it may say the same as its first one, or with one that was sent again under its id. Null for
 * an earlier state of the thread, and for an edited one. The details of the failure say where state and log part.
 */
async function restoredIfLost(
  client: AdapterClient,
  session: string,
  messages: BaseMessage[],
  { session: inUse, known, commonSeq, lastSeq, branch }: PalimpsestError['details'] = {},
): Promise<BaseMessage[] | null> {
  // The state of a run that goes on in another branch.
  if (branch !== undefined) return null;
  if (typeof inUse !== 'string' || typeof known !== 'number') return null;
  if (typeof commonSeq !== 'number' || typeof lastSeq !== 'number') return null;
  const logged = async (seq: number): Promise<BaseMessage | undefined> => {
    if (seq < 1 || seq > lastSeq) return undefined;
    const [found] = (await client.expand({ session: inUse, fromSeq: seq, limit: 1 })).messages;
    return fromStored((found?.native?.items ?? []) as unknown as StoredMessage[])[0];
  };
  const [first, begin, next] = await Promise.all([1, commonSeq - known + 1, commonSeq + 1].map(logged));
  const [ours] = messages;
  if (areOneById(first, ours) || areOneById(next, messages[known])) return null;
  const isAgain = areOneById(begin, ours);
  const isNew = commonSeq === 0 || (first?.id && ours?.id && saidBy(first) === saidBy(ours));
  if (!isAgain && !isNew) return null;
  const context = fromStored(await remembered<StoredMessage>(client, session));
  const rest = messages.slice(isAgain ? known : 0);
  return rest.some((message) => isEdited(message, context)) ? null : withEarlier(rest, context);
}

/** Newest messages of a log among which those of runs at the same time are. */
const mostAtOnce = 100;

/**
 * The new messages that were not stored because a run at the same time has stored the same texts: the log has other ids in their
 * place. What is new comes after the last answer, or begins with it.
 */
async function takenForOthers(
  client: AdapterClient,
  list: BaseMessage[],
  { session, known: count, edited, stored, throughSeq }: Synced,
): Promise<BaseMessage[]> {
  const from = Math.max(0, list.map(({ type }) => type).lastIndexOf('ai'));
  const recognized = list.slice(from, count);
  if (recognized.length === 0) return [];
  const lastSeq = edited?.commonSeq ?? (stored ? stored.fromSeq - 1 : throughSeq);
  const fromSeq = lastSeq - recognized.length + 1;
  if (fromSeq < 1) return [];
  const idsFrom = async (fromSeq: number, limit: number) => {
    const { messages } = await client.expand({ session, fromSeq, limit });
    return new Map(messages.map(({ seq, native }) => [seq, native && idOfStored(native.items)]));
  };
  const idOf = await idsFrom(fromSeq, recognized.length);
  const others = recognized.filter(({ id }, index) => {
    const logged = idOf.get(fromSeq + index);
    return Boolean(id) && Boolean(logged) && id !== logged;
  });
  if (others.length === 0) return [];
  // Messages of other runs may be between those that the log has.
  const recent = await idsFrom(Math.max(1, lastSeq - mostAtOnce + 1), mostAtOnce);
  const known = new Set(recent.values());
  return others.filter(({ id }) => !known.has(id));
}

const idOfStored = (items: readonly unknown[]): string | undefined =>
  fromStored(items as unknown as StoredMessage[])[0]?.id;

const areOneById = (one: BaseMessage | undefined, other: BaseMessage | undefined): boolean =>
  Boolean(one?.id) && one?.id === other?.id;

type Recovery = (typeof recoveryTools)[number]['function'];

function recoveryTool(options: MiddlewareOptions, { name, description, parameters }: Recovery) {
  return tool((input, config) => recovered(options.client, sessionOf(options, config), name, input), {
    ...{ name, description, schema: parameters },
  });
}

/** The part of a run's configuration that names its thread, and its place in the graphs around it. */
interface ThreadConfig {
  configurable?: { thread_id?: unknown; checkpoint_ns?: unknown };
}

function sessionOf({ session }: MiddlewareOptions, config: ThreadConfig): string {
  const id = session ?? config.configurable?.thread_id;
  if (typeof id === 'string' && id !== '')
    return session === undefined ? [id, ...callsAround(config)].join(':') : id;
  throw invalid(
    'the run has no session: neither the option session nor configurable.thread_id is set',
    'session',
    "Call the agent with { configurable: { thread_id: '…' } }, or give palimpsestMiddleware a session.",
  );
}

/** Nodes of the graphs in which an agent runs, from LangGraph's `tools:ID|agent:ID|PalimpsestMiddleware.before_model:ID`. */
function placesAround({ configurable }: ThreadConfig): string[] {
  const namespace = configurable?.checkpoint_ns;
  return typeof namespace === 'string' ? namespace.split('|').slice(0, -1) : [];
}

/** Ids of the tool calls in which an agent runs: it has the thread of its caller, and messages of its own. */
const callsAround = (config: ThreadConfig): string[] =>
  placesAround(config).flatMap((place) => /^tools:(.+)$/.exec(place)?.[1] ?? []);

/** The JSON that a checkpointer stores. LangChain leaves out the content of messages that were made of `contentBlocks`. */
function toStored(messages: BaseMessage[]): StoredMessage[] {
  const stored = mapChatMessagesToStoredMessages(messages).map(({ type, data }, index) => {
    const { content_blocks: _blocks, ...fields } = { content_blocks: undefined, ...data };
    return { type, data: { ...fields, content: messages[index]!.content } };
  });
  return JSON.parse(JSON.stringify(stored)) as StoredMessage[];
}

/** The conversion fills in fields of its argument, which belongs to the client. */
const fromStored = (messages: StoredMessage[]): BaseMessage[] =>
  mapStoredMessagesToChatMessages(structuredClone(messages));

/** Whether the state says what the context says, under whatever ids. */
function isSame(state: readonly BaseMessage[], context: readonly BaseMessage[]): boolean {
  return (
    state.length === context.length &&
    state.every((message, index) => saidBy(message) === saidBy(context[index]!))
  );
}

function saidBy(message: BaseMessage): string {
  const { type, name, content } = message;
  const calls = AIMessage.isInstance(message) ? [message.tool_calls, message.invalid_tool_calls] : [];
  const answers = 'tool_call_id' in message ? message.tool_call_id : null;
  return JSON.stringify([type, name, content, calls, answers]);
}

/** The usage that the provider reported with an answer. LangChain counts cached tokens as input tokens. */
function usageOf(answer: BaseMessage | undefined): ReportedUsage | undefined {
  if (!AIMessage.isInstance(answer) || !answer.usage_metadata) return undefined;
  const { input_tokens: inputTokens, output_tokens: outputTokens } = answer.usage_metadata;
  if (!isCount(inputTokens) || !isCount(outputTokens)) return undefined;
  const { model_name: name, model = name } = answer.response_metadata as Record<string, unknown>;
  const isName = typeof model === 'string' && idFault(model, 'stored') === null;
  return { inputTokens, outputTokens, ...(isName ? { model } : {}) };
}

const isCount = (tokens: number): boolean => Number.isSafeInteger(tokens) && tokens >= 0;

function remember(asked: Map<string, number>, session: string, messages: number): void {
  asked.set(session, messages);
  const [oldest] = asked.keys();
  if (asked.size > mostThreads && oldest !== undefined) asked.delete(oldest);
}
