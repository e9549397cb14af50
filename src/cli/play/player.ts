import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { validateView } from '../../context/view/validity.js';
import type { SessionContext } from '../../contract/context.js';
import type { Status } from '../../contract/sessions.js';
import type { CompactionOutcome } from '../../contract/workflows.js';
import { cutTurns } from '../../conversation/groups.js';
import type { ChatMessage } from '../../conversation/message.js';
import { type MessageWarning, warningsOf } from '../../conversation/validate.js';
import { isFailure, PalimpsestError } from '../../errors.js';
import type { Palimpsest } from '../../library/palimpsest.js';
import { resolvePolicy } from '../../policy/layers.js';
import type { PolicyInput } from '../../policy/schema.js';
import type { Transcript } from './transcripts.js';

/** Told of the events of a session while it is played. */
export interface PlayEvents {
  /** Some turns are stored already, from an earlier start. */
  resumed?(storedTurns: number, turns: number): void;
  /** A turn was appended and its context read. */
  turn?(turn: PlayedTurn): void;
  compacted?(outcome: CompactionOutcome): void;
  /** The session waits for a compaction before it goes on; told again and again while it does. */
  waiting?(generation: number, seconds: number): void;
  /** Something a person should know; the session goes on. */
  notice?(text: string): void;
}

export interface PlayedTurn {
  /** From 1. */
  turn: number;
  turns: number;
  /** Messages of the log. */
  messages: number;
  window: number;
  budget: number;
  /** Tokens of the context that a model would be sent now; null where it cannot fit. */
  tokens: number | null;
  /** Messages that stand in the context in a shortened form. */
  shortened: number;
  /** Generation being prepared; null when none is. */
  compacting: number | null;
}

export interface PlayedSession {
  session: string;
  messages: number;
  window: number;
  budget: number;
  /** Of the final context. */
  tokens: number;
  compactions: CompactionOutcome[];
  replay: { messages: number; identical: boolean };
  context: ChatMessage[];
  warnings: MessageWarning[];
}

/** Turns that a platform goes on with while a compaction runs; then this player waits, so that people can follow. */
const turnsAhead = 2;

/** A database that is away for this long, milliseconds, ends the session; a missed connection does not. */
const outageMs = 60_000;
const firstPauseMs = 100;
const longestPauseMs = 2_000;

/**
 * The id under which a transcript is stored: its own, and a hash over messages and policy. The same file with the same
 * flags continues where it was; other flags make another session.
 */
export function storedSessionId({ id, messages }: Transcript, policy: PolicyInput): string {
  const hash = createHash('sha256')
    .update(JSON.stringify([messages, policy]))
    .digest('hex')
    .slice(0, 8);
  // By way of UTF-8 no half of a surrogate pair is left.
  const readable = Buffer.from(id).toString().replaceAll('\u0000', ' ');
  let short = '';
  let encoded = 0;
  for (const character of readable) {
    encoded += encodeURIComponent(character).length;
    if (encoded > 180) break;
    short += character;
  }
  return `${short}~${hash}`;
}

/**
 * Plays one transcript as an agent platform would: append a turn, signal, read the context for the next model call.
 * Then checks what was promised: the context is valid and fits, the originals come back identical.
 */
export async function playSession(
  palimpsest: Palimpsest,
  transcript: Transcript,
  policy: PolicyInput,
  {
    events = {},
    settle = false,
    signal,
  }: {
    events?: PlayEvents;
    /** Every compaction commits before the next turn. */
    settle?: boolean;
    signal: AbortSignal;
  },
): Promise<PlayedSession> {
  const player = new Player(palimpsest, transcript, policy, events, settle ? 0 : turnsAhead, signal);
  return player.play();
}

class Player {
  private readonly session: string;
  private readonly settleTimeoutMs: number;
  /** Generation whose outcome was told last. */
  private told = 0;
  private ahead = 0;
  /** The failed attempt that was told last. */
  private failure: string | null = null;

  constructor(
    private readonly palimpsest: Palimpsest,
    private readonly transcript: Transcript,
    private readonly policy: PolicyInput,
    private readonly events: PlayEvents,
    /** Turns that are played while a compaction runs. */
    private readonly mostAhead: number,
    private readonly signal: AbortSignal,
  ) {
    this.session = storedSessionId(transcript, policy);
    this.settleTimeoutMs = resolvePolicy(policy).summary.deadline + 120_000;
  }

  async play(): Promise<PlayedSession> {
    const { messages } = this.transcript;
    const turns = cutTurns(messages);
    const stored = await this.storedMessages();
    const done = turns.filter(({ to }) => to <= stored).length;
    if (done > 0) {
      this.told = (await this.compactions()).at(-1)?.generation ?? 0;
      this.events.resumed?.(done, turns.length);
    }
    // The last stored turn is repeated: whoever stored it may have died before it was signalled.
    for (let index = Math.max(0, done - 1); index < turns.length; index++) {
      this.signal.throwIfAborted();
      const { from, to } = turns[index]!;
      await this.playTurn(index + 1, turns.length, messages.slice(from, to), to, this.saidAt(from, to));
    }
    await this.settle();
    return this.verdict();
  }

  /** The first time that the turn's messages bear. */
  private saidAt(from: number, to: number): string | null {
    return this.transcript.times?.slice(from, to).find((time) => time !== null) ?? null;
  }

  private async playTurn(
    turn: number,
    turns: number,
    messages: ChatMessage[],
    logged: number,
    at: string | null,
  ): Promise<void> {
    const { palimpsest, session, policy } = this;
    const appended = await this.patiently(() =>
      palimpsest.appendTurn({
        ...{ session, turnId: `turn-${turn}`, messages, policy },
        ...(at === null ? {} : { at }),
      }),
    );
    if (!appended.signalled)
      this.events.notice?.(`turn ${turn}: stored, but Temporal could not be told; the next turn tells it`);

    const context = await this.readContext(turn);
    if (context) await this.tellCompactions(context.generation);
    const status = appended.due || this.ahead > 0 ? await this.status() : null;
    this.events.turn?.({
      turn,
      turns,
      messages: logged,
      ...(context ? { window: context.window, budget: context.budget } : await this.sizes()),
      tokens: context?.tokens ?? null,
      shortened:
        context?.entries.filter(({ source }) => source === 'reduced' || source === 'omitted').length ?? 0,
      compacting: status?.compaction?.generation ?? null,
    });
    this.ahead = status && isBusy(status) ? this.ahead + 1 : 0;
    if (this.ahead > this.mostAhead) await this.settle();
  }

  /** The context as sent to the model now; null where the floor does not fit at this turn. */
  private async readContext(turn: number): Promise<SessionContext | null> {
    try {
      return await this.context(`after turn ${turn}`);
    } catch (error) {
      if (!isFailure(error, 'Budget.Unreachable')) throw error;
      const { type, message, hint } = error;
      this.events.notice?.(`turn ${turn}: ${type}: ${message}${hint === undefined ? '' : ` — ${hint}`}`);
      return null;
    }
  }

  private async sizes(): Promise<{ window: number; budget: number }> {
    const { window, budget } = await this.status();
    return { window: window.tokens, budget };
  }

  private status(): Promise<Status> {
    return this.patiently(() => this.palimpsest.status({ session: this.session }));
  }

  private async context(when: string): Promise<SessionContext> {
    const context = await this.patiently(() => this.palimpsest.context({ session: this.session }));
    checkContext(context, when);
    return context;
  }

  private compactions(): Promise<CompactionOutcome[]> {
    return this.patiently(() => this.palimpsest.compactions({ session: this.session }));
  }

  /** Calls again while PostgreSQL cannot be reached. Every call here may be repeated: a turn is stored once under its id. */
  private async patiently<T>(call: () => Promise<T>): Promise<T> {
    const until = Date.now() + outageMs;
    for (let pause = firstPauseMs, told = false; ; pause = Math.min(longestPauseMs, 2 * pause)) {
      try {
        return await call();
      } catch (error) {
        if (!isFailure(error, 'Store.Unavailable') || Date.now() > until) throw error;
        if (!told) this.events.notice?.(`${error.message}; trying again`);
        told = true;
        await sleep(pause, undefined, { signal: this.signal });
      }
    }
  }

  /** Waits until nothing is in flight any more. */
  private async settle(): Promise<void> {
    const { palimpsest, session, signal, events } = this;
    signal.throwIfAborted();
    const started = Date.now();
    const tick = setInterval(() => events.waiting?.(this.told + 1, (Date.now() - started) / 1_000), 500);
    let abort = (): void => {};
    const aborted = new Promise<never>((_, reject) => {
      abort = () => reject(signal.reason as Error);
      signal.addEventListener('abort', abort);
    });
    try {
      const settled = this.patiently(() => palimpsest.settled({ session, timeoutMs: this.settleTimeoutMs }));
      await Promise.race([settled, aborted]);
    } finally {
      clearInterval(tick);
      signal.removeEventListener('abort', abort);
    }
    this.ahead = 0;
    const { generation, lastError } = await this.status();
    await this.tellCompactions(generation);
    const failure = lastError ? `${lastError.type}: ${lastError.message}` : null;
    if (failure !== null && failure !== this.failure) events.notice?.(failure);
    this.failure = failure;
  }

  private async tellCompactions(generation: number): Promise<void> {
    if (generation <= this.told) return;
    for (const outcome of await this.compactions()) {
      if (outcome.generation <= this.told) continue;
      this.told = outcome.generation;
      this.events.compacted?.(outcome);
    }
  }

  private async verdict(): Promise<PlayedSession> {
    const { transcript } = this;
    const context = await this.context('at the end');
    const compactions = await this.compactions();
    const replay = await this.patiently(() => this.compareReplay());
    if (!replay.identical) {
      throw new PalimpsestError(
        'Store.Corrupt',
        `the replay gave ${replay.messages} messages that are not identical to the ${transcript.messages.length} of the input`,
      );
    }
    return {
      session: transcript.id,
      messages: transcript.messages.length,
      window: context.window,
      budget: context.budget,
      tokens: context.tokens,
      compactions,
      replay,
      context: context.messages,
      warnings: warningsOf(transcript.messages),
    };
  }

  private async compareReplay(): Promise<PlayedSession['replay']> {
    const { messages } = this.transcript;
    let count = 0;
    let identical = true;
    for await (const { message } of this.palimpsest.replay({ session: this.session })) {
      identical &&= JSON.stringify(message) === JSON.stringify(messages[count]);
      count += 1;
    }
    return { messages: count, identical: identical && count === messages.length };
  }

  private async storedMessages(): Promise<number> {
    try {
      return (await this.status()).messages;
    } catch (error) {
      if (isFailure(error, 'Store.SessionNotFound')) return 0;
      throw error;
    }
  }
}

/** Also while it measures or debounces: a compaction may be about to start. */
const isBusy = ({ phase }: Status): boolean => phase !== 'idle' && phase !== 'asleep';

/** What every context promises; a violation is a defect of this program, not of the input. */
function checkContext({ messages, tokens, budget }: SessionContext, when: string): void {
  const violations = validateView(messages);
  if (violations.length > 0)
    throw new Error(`the context ${when} is not valid for its provider: ${violations.join('; ')}`);
  if (tokens > budget)
    throw new Error(`the context ${when} has ${tokens} tokens, more than its budget of ${budget}`);
}
