import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { validateView } from '../../context/view/validity.js';
import type { SessionContext } from '../../contract/context.js';
import type { Status } from '../../contract/sessions.js';
import type { CompactionOutcome } from '../../contract/compactions.js';
import { cutTurns } from '../../conversation/groups.js';
import type { ChatMessage } from '../../conversation/message.js';
import { type MessageWarning, warningsOf } from '../../conversation/validate.js';
import { isFailure, PalimpsestError } from '../../errors.js';
import type { Palimpsest } from '../../library/palimpsest.js';
import { resolvePolicy } from '../../policy/layers.js';
import type { PolicyInput } from '../../policy/schema.js';
import type { Transcript } from './transcripts.js';

/** Receives the events of a session while it is played. */
export interface PlayEvents {
  /** An earlier run has already stored some of the turns. */
  resumed?(storedTurns: number, turns: number): void;
  /** A turn was appended and its context read. */
  turn?(turn: PlayedTurn): void;
  compacted?(outcome: CompactionOutcome): void;
  /** The session waits for a compaction before it continues; called repeatedly during the wait. */
  waiting?(generation: number, seconds: number): void;
  /** Information for people; the session continues. */
  notice?(text: string): void;
}

export interface PlayedTurn {
  /** Counts from 1. */
  turn: number;
  turns: number;
  /** Messages of the log. */
  messages: number;
  window: number;
  budget: number;
  /** Tokens of the context at this point; null if it cannot fit. */
  tokens: number | null;
  /** Messages that the context shows in shortened form. */
  shortened: number;
  /** Generation being prepared, or null. */
  compacting: number | null;
}

export interface PlayedSession {
  session: string;
  messages: number;
  window: number;
  budget: number;
  /** Tokens of the final context. */
  tokens: number;
  /** Turns that an earlier run had stored. */
  storedTurns: number;
  compactions: CompactionOutcome[];
  replay: { messages: number; identical: boolean };
  context: ChatMessage[];
  warnings: MessageWarning[];
}

/** Number of turns that are sent during a compaction; after them the player waits, so that people can follow. */
const turnsAhead = 2;

/** Milliseconds of database outage that end the session; a shorter loss of connection does not. */
const outageMs = 60_000;
const firstPauseMs = 100;
const longestPauseMs = 2_000;

/**
 * Returns the id under which a transcript is stored: its own id and a hash of messages and policy. The same file with the same
 * flags resumes its session; other flags create another session.
 */
export function storedSessionId({ id, messages }: Transcript, policy: PolicyInput): string {
  const hash = createHash('sha256')
    .update(JSON.stringify([messages, policy]))
    .digest('hex')
    .slice(0, 8);
  // The conversion to UTF-8 removes unpaired surrogates.
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
 * Plays one transcript as an agent platform would: append a turn, signal, read the context for the next model call. Then checks
 * the guarantees: the context is valid and fits, and the replay is identical to the originals.
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
    /** Waits for every compaction before the next turn. */
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
  /** The generation reported last. */
  private told = 0;
  private ahead = 0;
  private storedTurns = 0;
  /** The failed attempt reported last. */
  private failure: string | null = null;

  constructor(
    private readonly palimpsest: Palimpsest,
    private readonly transcript: Transcript,
    private readonly policy: PolicyInput,
    private readonly events: PlayEvents,
    /** Turns to play during a compaction. */
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
    this.storedTurns = done;
    if (done > 0) {
      this.told = (await this.compactions()).at(-1)?.generation ?? 0;
      this.events.resumed?.(done, turns.length);
    }
    // The last stored turn is repeated, because an earlier run may have ended before signalling it.
    for (let index = Math.max(0, done - 1); index < turns.length; index++) {
      this.signal.throwIfAborted();
      const { from, to } = turns[index]!;
      await this.playTurn(index + 1, turns.length, messages.slice(from, to), to, this.saidAt(from, to));
    }
    await this.settle();
    return this.verdict();
  }

  /** Returns the time of the first message of the turn that has a time, or null. */
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
      this.events.notice?.(
        `turn ${turn}: stored, but Temporal could not be signalled; the next due turn or the sweep repeats the signal`,
      );

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

  /** Returns the context for the model, or null if even the smallest possible context exceeds the budget at this turn. */
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

  /** Repeats a call while PostgreSQL is unreachable. Every call here is repeatable: a turn is stored once under its id. */
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

  /** Waits until no work is in flight. */
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
      storedTurns: this.storedTurns,
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

/** Also true while the workflow measures or debounces, because a compaction may be about to start. */
const isBusy = ({ phase }: Status): boolean => phase !== 'idle' && phase !== 'asleep';

/** Checks the guarantees of every context; a violation is a defect of this program, not of the input. */
function checkContext({ messages, tokens, budget }: SessionContext, when: string): void {
  const violations = validateView(messages);
  if (violations.length > 0)
    throw new Error(`the context ${when} is not valid for its provider: ${violations.join('; ')}`);
  if (tokens > budget)
    throw new Error(`the context ${when} has ${tokens} tokens, more than its budget of ${budget}`);
}
