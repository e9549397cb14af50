/** `palimpsest/ai-sdk`: `prepareStep` and `onStepFinish` for the AI SDK (package `ai`), versions 5 and 6. */
import { jsonSchema, tool, type Tool } from 'ai';
import { idFault } from '../contract/ids.js';
import type { SentMessage } from '../contract/native.js';
import { recoveryTools, type RecoveryToolName } from '../contract/recovery-tools.js';
import { invalid } from '../errors.js';
import type { UsageReport } from '../tokens/reported-usage.js';
import {
  type AdapterOptions,
  checkAdapterOptions,
  optionRules,
  recovered,
  remembered,
  sharedRules,
  syncRequest,
} from './options.js';

export interface StepOptions extends AdapterOptions {
  session: string;
}

const rules = {
  ...sharedRules,
  session: { ...optionRules.text, isRequired: true },
  tools: optionRules.object,
};

/** What `generateText`, `streamText` and agents pass to `prepareStep`. */
interface NextStep<Message> {
  messages: Message[];
  steps: readonly { response: { messages: readonly unknown[] } }[];
}

/** What they pass to `onStepFinish`. */
interface FinishedStep {
  response: { modelId: string; messages: readonly SentMessage[] };
  usage: { inputTokens: number | undefined; outputTokens: number | undefined; inputTokenDetails?: object };
  providerMetadata?: { [provider: string]: { [field: string]: unknown } };
}

export interface Steps {
  /** Stores the messages that the session does not have, and answers those of its context. Throws the failures of `sync`. */
  prepareStep<Message extends SentMessage>(step: NextStep<Message>): Promise<{ messages: Message[] }>;
  /** Stores the answer and the results of its calls. */
  onStepFinish(step: FinishedStep): Promise<void>;
}

export type RecoveryToolSet = Record<RecoveryToolName, Tool<unknown, string>>;

/**
 * Stores every message of a conversation in a session, and sends the session's context to the model in place of the whole list.
 * With `tools`, the agent's own tools, the result also has these tools and the recovery tools; without, the context names no
 * recovery tool. Make a new object for each call of `generateText` or `streamText`.
 *
 * @example
 * const { text } = await generateText({ model, messages, ...palimpsest({ client, session }) });
 */
export function palimpsest<Tools extends object>(
  options: StepOptions & { tools: Tools },
): Steps & { tools: Tools & RecoveryToolSet };
export function palimpsest(options: StepOptions): Steps;
export function palimpsest<Tools extends object>(
  options: StepOptions & { tools?: Tools },
): Steps & { tools?: Tools & RecoveryToolSet } {
  checkAdapterOptions(options, rules);
  const { client, session, tools, memory = false, onSync } = options;
  const request = syncRequest(options, tools !== undefined);
  let run: Run | null = null;

  const contextFor = async <Message extends SentMessage>(list: readonly Message[], usage?: UsageReport) => {
    const synced = await client.sync<Message>({
      ...{ session, format: 'ai-sdk', messages: sentOf(list) },
      ...request,
      ...(usage === undefined ? {} : { usage }),
    });
    onSync?.(synced);
    return synced.context.messages;
  };

  const earlierThan = async (messages: readonly SentMessage[]): Promise<readonly SentMessage[]> => {
    const held = await remembered<SentMessage>(client, session);
    return beginsWithContext(messages, held) ? [] : held;
  };

  return {
    async prepareStep<Message extends SentMessage>({ messages, steps }: NextStep<Message>) {
      const before = run?.steps === steps ? run : null;
      const earlier = before?.earlier ?? (memory ? await earlierThan(messages) : []);
      const list = [...(earlier as Message[]), ...messages];
      // The step before has stored the same list.
      const known = before?.list.length === list.length ? before.context : null;
      const context = (known as Message[] | null) ?? (await contextFor(list));
      const responses = steps.at(-1)?.response.messages.length ?? null;
      run = { steps, earlier, list, responses, context: null };
      return { messages: context };
    },
    async onStepFinish(step) {
      if (run === null)
        throw invalid(
          'onStepFinish was called before prepareStep',
          'prepareStep',
          'Give generateText or streamText both functions of the object.',
        );
      const { messages } = step.response;
      const list = [...run.list, ...messages.slice(run.responses ?? resultsBefore(messages))];
      run = { ...run, list, context: await contextFor(list, usageOf(step)) };
    },
    ...(tools === undefined ? {} : { tools: { ...tools, ...recoveryToolSet(options) } }),
  };
}

/** Whether the list has the context already. A user may repeat a question, but sends no answers. */
const beginsWithContext = (list: readonly SentMessage[], context: readonly SentMessage[]): boolean =>
  context.some(({ role }) => role === 'assistant') &&
  JSON.stringify(sentOf(list.slice(0, context.length))) === JSON.stringify(context);

/** One call of `generateText` or `streamText`. */
interface Run {
  /** The SDK's list of the finished steps, the same one for all steps. */
  steps: NextStep<unknown>['steps'];
  /** The context that was put before the messages, if the session is their memory. */
  earlier: readonly SentMessage[];
  /** All messages so far. */
  list: readonly SentMessage[];
  /** How many of them the steps made; null before the first step. */
  responses: number | null;
  /** The context for the next step; null while a step runs. */
  context: readonly SentMessage[] | null;
}

/** The results of calls that a user approved come before the first step, and are in the list already. */
function resultsBefore(messages: readonly SentMessage[]): number {
  const first = messages.findIndex(({ role }) => role !== 'tool');
  return first === -1 ? messages.length : first;
}

function recoveryToolSet({ client, session }: StepOptions): RecoveryToolSet {
  const made = recoveryTools.map(({ function: { name, description, parameters } }) => [
    name,
    tool({
      description,
      inputSchema: jsonSchema<unknown>(parameters),
      execute: (input: unknown) => recovered(client, session, name, input),
    }),
  ]);
  return Object.fromEntries(made) as RecoveryToolSet;
}

/** A part of a message; a message has text or parts. */
interface Part {
  type: string;
  text?: string;
}

/**
 * The messages as JSON, in the one form in which they come again: as the SDK makes them during a run, and as
 * `convertToModelMessages` makes them from a chat.
 */
function sentOf<Message extends SentMessage>(messages: readonly Message[]): Message[] {
  const plain = JSON.parse(JSON.stringify(messages, withoutBytes)) as (Message & { content?: unknown })[];
  return plain.flatMap((message) => {
    const { role, content } = message;
    if (role === 'assistant' && saysNothing(content)) return [];
    if (role !== 'tool' || !Array.isArray(content)) return [message];
    const parts = content as Part[];
    // A chat has the answer to a request for approval and the result of the call in one message, a run in two.
    const isResponse = ({ type }: Part) => type === 'tool-approval-response';
    return [parts.filter(isResponse), parts.filter((part) => !isResponse(part))]
      .filter((some) => some.length > 0)
      .map((some) => ({ ...message, content: some }));
  });
}

/** A chat has no answer of a model that says nothing. */
const saysNothing = (content: unknown): boolean =>
  content === '' ||
  (Array.isArray(content) && (content as Part[]).every(({ type, text }) => type === 'text' && text === ''));

/** Bytes become base64, which the SDK takes as well. */
function withoutBytes(this: unknown, key: string, value: unknown): unknown {
  const given = (this as Record<string, unknown>)[key];
  const bytes = given instanceof ArrayBuffer ? new Uint8Array(given) : given;
  if (!(bytes instanceof Uint8Array)) return value;
  let text = '';
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}

/** In version 5, `inputTokens` of Anthropic's provider lacks the cached tokens; its own report has them. */
function usageOf({ usage, response, providerMetadata }: FinishedStep): UsageReport | undefined {
  const model = idFault(response.modelId, 'stored') === null ? { model: response.modelId } : {};
  const ofAnthropic = usage.inputTokenDetails ? undefined : providerMetadata?.anthropic?.usage;
  if (isAnthropicUsage(ofAnthropic)) return { ...ofAnthropic, ...model };
  const { inputTokens, outputTokens = 0 } = usage;
  if (!isCount(inputTokens) || !isCount(outputTokens)) return undefined;
  return { inputTokens, outputTokens, ...model };
}

const isAnthropicUsage = (usage: unknown): usage is { input_tokens: number } =>
  typeof usage === 'object' && usage !== null && 'input_tokens' in usage && isCount(usage.input_tokens);

const isCount = (tokens: unknown): tokens is number =>
  Number.isSafeInteger(tokens) && (tokens as number) >= 0;
