/** `palimpsest/mastra`: a processor for agents of Mastra, in place of its message history. */
import { isDeepStrictEqual } from 'node:util';
import type { PalimpsestClient } from '../contract/client.js';
import type { SyncRequest } from '../contract/sync.js';
import { afterOthers, inTurn } from '../contention.js';
import { invalid, isFailure } from '../errors.js';
import { heldContext, type HeldRequest, isEdited } from './held.js';
import { checkAdapterOptions, optionRules } from './options.js';

export interface PalimpsestMemoryOptions {
  /** `Palimpsest` or `HttpPalimpsest`. */
  client: Pick<PalimpsestClient, 'sync'>;
  /** Id of the session. @default the id of the thread of the call */
  session?: string;
  /** Policy of a new session, for instance `{ model: 'gpt-5' }`. An existing session keeps its policy. */
  policy?: SyncRequest['policy'];
  /**
   * Whether each call of the agent is given the new messages only, and the session is the agent's memory. `false`: each call is
   * given the whole list.
   * @default true
   */
  memory?: boolean;
  /**
   * What to do if a whole list lacks messages of the session, or has others in their place. `fork`: go on in a fork that ends
   * where both part. `append`: append what the session does not have. `refuse`: fail with `Store.ListEdited`. It is refused
   * without `memory: false`.
   * @default 'fork'
   */
  onEdit?: SyncRequest['onEdit'];
}

/** Parts of the types of `@mastra/core`, which are not imported because that package needs Node 22. */
interface PromptMessage {
  role: string;
  content: unknown;
}

interface Conversion {
  llmPrompt(): Promise<PromptMessage[]>;
}

interface Messages {
  get: {
    all: {
      db(): { threadId?: string | undefined }[];
      aiV5: Conversion;
      aiV6?: Conversion | undefined;
      aiV7?: Conversion | undefined;
    };
    remembered: { db(): unknown[] };
  };
}

interface Step {
  usage?: { inputTokens?: number | undefined; outputTokens?: number | undefined } | undefined;
}

interface Shared {
  /** What a processor keeps during one call of the agent. */
  state: Record<string, unknown>;
  requestContext?: { get(key: never): unknown } | undefined;
}

interface RequestArgs<Message> extends Shared {
  prompt: Message[];
  model: { specificationVersion?: string | undefined };
  messageList?: Messages | undefined;
  stepNumber: number;
  steps: Step[];
}

interface ResultArgs<List> extends Shared {
  messageList: List;
  result: { steps: Step[]; finishReason?: string | undefined };
}

type Message = Record<string, unknown>;

/** One call of the agent. */
interface Run {
  session: string;
  /** Version of the model's interface, which says how Mastra converts its messages. */
  version: string;
  /** The call was given the whole list. */
  isWhole: boolean;
  /** The context that was answered last. */
  context: Message[];
  /** The messages of the call that are stored. */
  stored: Message[];
}

/**
 * Stores the messages of each call of the agent in a session, and gives the model the session's context. It has to be both an
 * input processor, the last one, and an output processor. `palimpsestMemory` makes it both.
 */
export class PalimpsestProcessor {
  readonly id = 'palimpsest';
  readonly name = 'Palimpsest';

  constructor(private readonly options: PalimpsestMemoryOptions) {
    checkAdapterOptions(options, rules);
    if (options.onEdit !== undefined && options.memory !== false)
      throw invalid(
        'onEdit has no effect: without memory: false, no call has a list that can be edited',
        'onEdit',
        'Set memory to false if each call has the whole list; otherwise leave out onEdit.',
      );
  }

  async processLLMRequest<Given extends PromptMessage>({
    prompt,
    model,
    messageList,
    stepNumber,
    steps,
    state,
    requestContext,
  }: RequestArgs<Given>): Promise<{ prompt: Given[] }> {
    if (choosesAgents(messageList)) return { prompt };
    if (stepNumber === 0) refuseHistory(messageList);
    const run =
      runIn(state) ?? (await this.begin(sessionOf(this.options, messageList, requestContext), prompt));
    run.version = model.specificationVersion ?? run.version;
    state[key] = run;
    await this.store(run, prompt, steps.at(-1));
    const instructions = prompt.filter(isInstruction);
    return { prompt: [...instructions, ...(run.context.map(asPrompt) as unknown as Given[])] };
  }

  async processOutputResult<List extends Messages>({
    messageList,
    state,
    result,
  }: ResultArgs<List>): Promise<List> {
    const run = runIn(state);
    // After a failed request, the list lacks messages of the call. What the request had is stored.
    if (run === null || result.finishReason === 'error') return messageList;
    const { aiV5, aiV6 = aiV5, aiV7 = aiV6 } = messageList.get.all;
    const conversion = run.version === 'v4' ? aiV7 : run.version === 'v3' ? aiV6 : aiV5;
    await this.store(run, await conversion.llmPrompt(), result.steps.at(-1));
    return messageList;
  }

  private async begin(session: string, prompt: PromptMessage[]): Promise<Run> {
    const said = storable(prompt);
    const { memory = true } = this.options;
    if (!memory || (said.some(isAnswer) && (await this.isWhole(session, said))))
      return { session, version: 'v2', isWhole: true, context: [], stored: [] };
    const context = await this.held(session);
    const stored = isOpen(context, said) ? said : said.slice(0, commonLength(context, said));
    return { session, version: 'v2', isWhole: false, context, stored };
  }

  /** Whether messages with answers are the whole list, which the session has but for its end. Stores that end. */
  private async isWhole(session: string, said: Message[]): Promise<boolean> {
    try {
      const request = { ...this.request(session), messages: said, onEdit: 'refuse' as const };
      await this.options.client.sync<Message, undefined>(request);
      return true;
    } catch (error) {
      if (!isFailure(error, 'Store.ListEdited')) throw error;
      // A question and its answer.
      if (Number(error.details?.commonSeq) < 2) return false;
      throw invalid(
        `the messages of this call begin as session ${session} does, but are not its messages and new ones`,
        'messages',
        'Give each call the new messages only, or set the option memory to false if each call has the whole list.',
      );
    }
  }

  private async held(session: string): Promise<Message[]> {
    const held = await heldContext<Message, undefined>(this.options.client, this.request(session));
    return held?.context.messages ?? [];
  }

  /** Stores what is new in the messages of a call, whoever else adds to the session. */
  private async store(run: Run, prompt: PromptMessage[], answered: Step | undefined): Promise<void> {
    const said = storable(prompt);
    const begun = run.stored.length;
    if (!isDeepStrictEqual(said.slice(0, begun), run.stored))
      throw invalid(
        'messages of this call have changed since they were stored',
        'messages',
        'Make Palimpsest the last input processor, and do not change earlier messages in each step.',
      );
    const { client, onEdit = 'fork' } = this.options;
    const request = { ...this.request(run.session), ...(begun > 0 ? usageOf(answered) : {}) };
    const store = async (messages: Message[], more: Pick<SyncRequest, 'onEdit'> = {}) => {
      const { context } = await client.sync<Message, undefined>({ ...request, messages, ...more });
      Object.assign(run, { context: context.messages, stored: said });
    };
    if (run.isWhole) return inTurn(client, run.session, () => store(said, { onEdit }));
    await inTurn(client, run.session, () =>
      afterOthers(run.session, isEdited, async (attempt) => {
        if (attempt > 1) run.context = await this.held(run.session);
        await store([...run.context, ...said.slice(begun)]);
      }),
    );
  }

  private request(session: string): HeldRequest {
    // The agent has no tools that read evicted messages.
    return { session, format: 'ai-sdk', policy: { recovery: 'none', ...this.options.policy } };
  }
}

const rules = {
  client: optionRules.client('sync'),
  session: optionRules.text,
  policy: optionRules.object,
  memory: optionRules.flag,
  onEdit: optionRules.edit,
};

/** Both places of the processor, for the configuration of an agent. */
export function palimpsestMemory(options: PalimpsestMemoryOptions): {
  inputProcessors: PalimpsestProcessor[];
  outputProcessors: PalimpsestProcessor[];
} {
  const processor = new PalimpsestProcessor(options);
  return { inputProcessors: [processor], outputProcessors: [processor] };
}

/** Field of a call's state. */
const key = 'palimpsest';

const runIn = (state: Record<string, unknown>): Run | null => (state[key] as Run | undefined) ?? null;

function refuseHistory(messageList: Messages | undefined): void {
  if ((messageList?.get.remembered.db().length ?? 0) === 0) return;
  throw invalid(
    "Mastra's memory has added earlier messages, which the session has as well",
    'memory',
    'Set the options lastMessages and semanticRecall of the memory to false.',
  );
}

function sessionOf(
  { session }: PalimpsestMemoryOptions,
  messageList: Messages | undefined,
  context: Shared['requestContext'],
): string {
  const get = (name: string): unknown => context?.get(name as never);
  const memory = get('MastraMemory') as { thread?: { id?: unknown } } | undefined;
  const listed = messageList?.get.all.db().find(({ threadId }) => threadId)?.threadId;
  const id = session ?? get('mastra__threadId') ?? memory?.thread?.id ?? listed;
  if (typeof id === 'string' && id !== '') return id;
  if (messageList?.get.all.db().length === 0)
    throw invalid(
      'the call has no messages, with which Mastra names its thread',
      'messages',
      'Call the agent with a text that is not empty, or give palimpsestMemory a session.',
    );
  throw invalid(
    'the call has no session: the option session is not set, and Mastra names no thread',
    'session',
    "Call the agent with { memory: { thread: '…', resource: '…' } }, or give palimpsestMemory a session.",
  );
}

/** Whether it is a call of the agent that chooses the agents of a network. Mastra's memory has its messages. */
const choosesAgents = (messageList: Messages | undefined): boolean =>
  messageList !== undefined && Reflect.get(messageList, '_agentNetworkAppend') === true;

const isAnswer = ({ role }: Message): boolean => role === 'assistant';
const isInstruction = ({ role }: PromptMessage): boolean => role === 'system';

/** The messages of a prompt without instructions, which belong to the agent, as JSON. */
function storable(prompt: PromptMessage[]): Message[] {
  const text = JSON.stringify(
    prompt.filter((message) => !isInstruction(message)),
    function (this: Record<string, unknown>, name: string, value: unknown) {
      const own = this[name];
      return own instanceof Uint8Array ? Buffer.from(own).toString('base64') : value;
    },
  );
  return JSON.parse(text) as Message[];
}

/** Mastra notes times in the provider options of messages. */
const saySame = (ours: Message[], theirs: Message[]): boolean =>
  isDeepStrictEqual(withoutOptions(ours), withoutOptions(theirs));

/** Number of messages with which a context ends and a call begins: the call was suspended, or failed before its first answer. */
function commonLength(context: Message[], said: Message[]): number {
  let count = Math.min(context.length, said.length);
  while (count > 0 && !saySame(context.slice(-count), said.slice(0, count))) count--;
  return count;
}

/** Whether a context ends with the messages of a call and steps with tools: the call failed before its last answer. */
function isOpen(context: Message[], said: Message[]): boolean {
  const end = context.findLastIndex((message) => !isStep(message)) + 1;
  return (
    context.at(-1)?.role === 'tool' &&
    said.length <= end &&
    saySame(context.slice(end - said.length, end), said)
  );
}

/** Whether a message is an answer that calls tools, or has results. */
const isStep = ({ role, content }: Message): boolean =>
  role === 'tool' ||
  (role === 'assistant' &&
    Array.isArray(content) &&
    (content as Message[]).some(({ type }) => type === 'tool-call'));

const withoutOptions = (messages: Message[]): unknown =>
  JSON.parse(
    JSON.stringify(messages, (name, value: unknown) => (name === 'providerOptions' ? undefined : value)),
  );

/** A message of the AI SDK as its models take it. */
function asPrompt({ content, ...message }: Message): Message {
  if (message.role === 'system') return { ...message, content };
  const parts = typeof content === 'string' ? [{ type: 'text', text: content }] : (content as Message[]);
  return { ...message, content: parts.map(asPart) };
}

function asPart({ image, ...part }: Message): Message {
  const media = part.type === 'image' ? { mediaType: 'image/*', ...part, type: 'file', data: image } : part;
  if (media.type !== 'file') return media;
  const { data } = media as { data?: unknown };
  return typeof data === 'string' && /^https?:/.test(data) ? { ...media, data: new URL(data) } : media;
}

function usageOf(step: Step | undefined): Pick<SyncRequest, 'usage'> {
  const { inputTokens = NaN, outputTokens = NaN } = step?.usage ?? {};
  return Number.isSafeInteger(inputTokens) && Number.isSafeInteger(outputTokens)
    ? { usage: { inputTokens, outputTokens } }
    : {};
}
