/** Asks a summarizer given as a function, and stores every accepted answer under its content key. */
import { createHash } from 'node:crypto';
import type { Redact } from '../../summary/redaction/redact.js';
import { isFailure, isFailureType, isModelFailure, PalimpsestError } from '../../errors.js';
import type { Policy } from '../../policy/defaults.js';
import type { ChunkRef } from '../../summary/ask/chunk.js';
import { journalPrompt } from '../../summary/ask/journal-prompts.js';
import type { Layer } from '../../summary/ask/layers.js';
import { MOST_FOLLOWING } from '../../summary/ask/record.js';
import { readNotes } from '../../summary/journal/notes.js';
import { snapshotKey } from '../plan/reading.js';
import type { LoggedMessage } from '../../conversation/message.js';
import { promptSettings, type SummaryRequest } from '../../summary/ask/prompts.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { digestByRule, isOfChunk, mergedByRule } from '../replace/by-rule.js';
import type { Generation } from './generation.js';
import type { MemoryLog } from './log.js';
import type { Plan } from '../plan/plan-types.js';
import {
  chunkQuestion,
  countRequest,
  halvesOf,
  mergeNotesQuestion,
  mergeQuestion,
  notedAs,
  notesQuestion,
  repairQuestion,
  stateQuestion,
  type NotesAround,
  type Previous,
  type Question,
} from '../summarize/questions.js';
import type { Asking } from '../summarize/answers.js';
import type { LayerText, Parent, RepairNeeded, Written } from '../replace/input.js';
import type { DigestRef, ModelSteps, NotesStep } from '../summarize/model-steps.js';
import type { Summarized } from '../summarize/summarize.js';

/** Asks one question. After a failure for which `spares` returns false, no further question is asked. */
type Answer = (question: Question, spares?: (error: unknown) => boolean) => Promise<DigestRef>;

/** The requests of one compaction. `assertGoing` throws the failure after which no request is sent any more. */
interface Asked {
  calls: Generation['calls'];
  assertGoing: () => void;
}

const isOverflow = (error: unknown): error is PalimpsestError => isFailure(error, 'Llm.ContextOverflow');

export class MemoryAsker {
  private readonly texts = new Map<string, string>();
  /** Questions that are not answered yet, by key. */
  private readonly flights = new Map<string, Promise<DigestRef>>();

  constructor(
    private readonly policy: Policy,
    private readonly counter: TokenCounter,
    private readonly log: MemoryLog,
    private readonly snapshotOf: (generation: number) => string | null,
    private readonly parent: () => Pick<Parent, 'state'>,
    private readonly redact: Redact,
  ) {}

  store(key: string, text: string): void {
    this.texts.set(key, text);
  }

  textOf(key: string): string {
    const text = key.startsWith(snapshotKey)
      ? (this.snapshotOf(Number(key.slice(snapshotKey.length))) ?? undefined)
      : this.texts.get(key);
    if (text !== undefined) return text;
    throw new PalimpsestError('Store.Corrupt', `digest ${key} is not known`);
  }

  textsOf(layers: readonly Layer[]): LayerText[] {
    return layers.map((layer) => ({ layer, text: this.textOf(layer.key) }));
  }

  /** The texts of the references. */
  written({ snapshot, layers, changes, messages, chunks }: Summarized): Written {
    return {
      snapshot: snapshot === null ? null : this.textOf(snapshot),
      layers: this.textsOf(layers),
      changes: changes ? this.textOf(changes) : null,
      messages: messages.map(({ seq, key }) => ({ seq, text: this.textOf(key) })),
      chunks,
    };
  }

  /** Returns the functions that ask the questions of one compaction; each call of the summarizer is added to `calls`. */
  begin(summarizer: Summarizer | null) {
    const calls: Generation['calls'] = [];
    /** Set after a failure that concerns all questions; no further question is then asked. */
    let ended: { error: unknown } | null = null;
    const answer: Answer = async (question, spares = isOverflow) => {
      const assertGoing = () => {
        if (ended) throw ended.error;
      };
      assertGoing();
      try {
        return await this.answer(question, summarizer, { calls, assertGoing });
      } catch (error) {
        if (!spares(error)) ended = { error };
        throw error;
      }
    };
    const giveUp = (error: unknown): never => {
      ended = { error };
      throw error;
    };
    return {
      calls,
      steps: (plan: Plan): ModelSteps => this.steps(this.asking(plan), answer, giveUp),
      /** The repaired snapshot, or null if the repair failed and the first snapshot is used. */
      repair: async (plan: Plan, key: string, { repair, snapshot }: RepairNeeded): Promise<string | null> => {
        const found = () => Promise.resolve({ snapshot });
        try {
          return this.textOf((await answer(repairQuestion(this.asking(plan), key, repair, found))).key);
        } catch (error) {
          if (isModelFailure(error)) return null;
          throw error;
        }
      },
    };
  }

  private steps(asking: Asking, answer: Answer, giveUp: (error: unknown) => never): ModelSteps {
    const texts = (keys: readonly string[]) => Promise.resolve(keys.map((key) => this.textOf(key)));
    return {
      readChunk: async (step) => {
        const { chunk, notes, rulesServe = false } = step;
        const read = () => this.log.range(chunk.fromSeq, chunk.throughSeq);
        const members = this.log.members(chunk.fromSeq, chunk.throughSeq);
        const previous = step.fold ? this.previous(step.foldGeneration) : null;
        const originals = () => Promise.resolve(read());
        const question = await (notes
          ? notesQuestion(asking, step, members, () => Promise.resolve(this.around(notes)), originals)
          : chunkQuestion(asking, step, members, previous, originals));
        try {
          const digest = await answer(question, rulesServe ? isOfChunk : isOverflow);
          return notes ? this.noted(digest, asking) : digest;
        } catch (error) {
          const halves = isOverflow(error) ? await halvesOf(asking, chunk, read()) : null;
          if (isOverflow(error) && halves !== null) throw new Overflow(error, halves);
          const made = rulesServe && isOfChunk(error) ? await digestByRule(asking, step, read()) : null;
          if (made === null || !isFailure(error)) return giveUp(error);
          this.texts.set(made.key, made.text);
          return { ...this.reference(made.key, made.text, false), byRule: error.type };
        }
      },
      merge: async (step) => {
        const previous = step.root ? this.previous(step.foldGeneration) : null;
        const { digests, maxTokens, notes = false, rulesServe = false } = step;
        const question = notes
          ? mergeNotesQuestion(asking, step, texts)
          : mergeQuestion(asking, step, previous, texts);
        try {
          return await answer(question, rulesServe ? isOfChunk : isOverflow);
        } catch (error) {
          if (!rulesServe || !isOfChunk(error) || !isFailure(error)) throw error;
          const made = mergedByRule(asking, await texts(digests), maxTokens);
          this.texts.set(made.key, made.text);
          return { ...this.reference(made.key, made.text, false), byRule: error.type };
        }
      },
      changeState: async ({ digests, followsFromSeq, maxTokens }) => {
        const state = { text: this.parent().state ?? '', maxTokens };
        const follows = () => Promise.resolve(this.following(followsFromSeq));
        try {
          return await answer(stateQuestion(asking, digests, state, follows, texts), isOfChunk);
        } catch (error) {
          if (isOfChunk(error)) return null;
          throw error;
        }
      },
      overflow: (error) => {
        if (error instanceof Overflow) return { halves: error.halves };
        return isOverflow(error) ? { halves: null } : null;
      },
      failed: (type, message) => new PalimpsestError(isFailureType(type) ? type : 'Llm.BadOutput', message),
    };
  }

  private around({ before, followsFromSeq, stateTokens }: NotesStep): NotesAround {
    return {
      before: before && {
        throughSeq: before.throughSeq,
        text: before.key === null ? null : readNotes(this.textOf(before.key)).notes,
      },
      follows: followsFromSeq === null ? [] : this.following(followsFromSeq),
      state: stateTokens === null ? null : { text: this.parent().state ?? '', maxTokens: stateTokens },
    };
  }

  private following(fromSeq: number): LoggedMessage[] {
    return this.log.range(fromSeq, fromSeq + MOST_FOLLOWING - 1);
  }

  /** Adds the tokens of the notes, and whether the answer has the changes of the current state. */
  private noted(digest: DigestRef, { counter }: Asking): DigestRef {
    return { ...digest, ...notedAs(this.textOf(digest.key), this.parent().state ?? '', counter) };
  }

  private async answer(question: Question, summarizer: Summarizer | null, asked: Asked): Promise<DigestRef> {
    const { key } = question;
    // A question of a compaction written ahead may still be in flight; if it fails, it is asked again.
    await this.flights.get(key)?.catch(() => null);
    const stored = this.texts.get(key);
    if (stored !== undefined) return this.reference(key, stored, true);
    if (summarizer === null) throw new PalimpsestError('Llm.Unavailable', 'there is no summarizer');
    const flight = this.ask(question, summarizer, asked);
    this.flights.set(key, flight);
    try {
      return await flight;
    } finally {
      this.flights.delete(key);
    }
  }

  private async ask(
    question: Question,
    summarizer: Summarizer,
    { calls, assertGoing }: Asked,
  ): Promise<DigestRef> {
    const { key, kind } = question;
    const { request, accept } = await question.prepare();
    assertGoing();
    const answered: unknown = await summarizer(request, { kind, maxTokens: request.maxTokens });
    if (typeof answered !== 'string')
      throw new PalimpsestError(
        'Llm.BadOutput',
        `the summarizer answered with ${typeof answered}, not with text`,
      );
    const inputTokens = countRequest(request, this.counter);
    calls.push({ kind, key, inputTokens, outputTokens: this.counter.count(answered) });
    const text = accept(answered);
    this.texts.set(key, text);
    return this.reference(key, text, false);
  }

  private reference(key: string, text: string, cached: boolean): DigestRef {
    const at = 0;
    return { key, tokens: this.counter.count(text), cached, startedAt: at, endedAt: at };
  }

  private previous(generation: number | null): Previous | null {
    const text = generation === null ? null : this.snapshotOf(generation);
    return text === null ? null : { text, sha256: createHash('sha256').update(text).digest('hex') };
  }

  private asking({ summarizer }: Plan): Asking {
    return {
      tenant: '',
      summarizer,
      prompt:
        this.policy.summary.mode === 'journal'
          ? journalPrompt(this.policy.summary)
          : promptSettings(this.policy.summary),
      redact: this.redact,
      counter: this.counter,
    };
  }
}

/** An overflow with the halves of the chunk to continue with. */
class Overflow extends PalimpsestError {
  constructor(
    error: PalimpsestError,
    readonly halves: [ChunkRef, ChunkRef] | null,
  ) {
    super(error.type, error.message, { cause: error });
  }
}

/**
 * Returns the summarizer's answer to one request. It throws a `PalimpsestError` of type `Llm.*` for failures that the policy's
 * fallback handles; any other error is passed to the caller of `compact`, and the conversation stays unchanged.
 */
export type Summarizer = (
  request: SummaryRequest,
  about: { kind: Question['kind']; maxTokens: number },
) => string | Promise<string>;
