import { count } from '../../numbers.js';
import type { ChunkRef } from '../../summary/ask/chunk.js';
import type { Plan } from '../plan/plan-types.js';
import type { ChunkStep, DigestRef, ModelSteps, NotesStep, Progress, StateStep } from './model-steps.js';

/** A chunk that was read; if a chunk was halved, one of its parts. */
export interface Leaf {
  chunk: ChunkRef;
  digest: DigestRef;
}

/** Requests the digests of one compaction, at most `concurrency` at a time, and records how many tokens the originals of each have. */
export class Digests {
  /** In the order of their answers. */
  readonly used: DigestRef[] = [];
  /** Tokens of the originals of each digest, by key. */
  private readonly covered = new Map<string, number>();
  private readonly inTurn: <T>(task: () => Promise<T>) => Promise<T>;

  constructor(
    readonly plan: Plan,
    readonly steps: ModelSteps,
    readonly progress: Progress,
  ) {
    this.inTurn = limiter(plan.summarizer.concurrency);
  }

  /** Reads the only chunk together with the previous snapshot; the answer is the new snapshot. */
  readAndFold(chunk: ChunkRef): Promise<DigestRef> {
    return this.read(chunk, { number: 1, of: 1, fold: true });
  }

  /** Reads the chunks, in order. A chunk that does not fit is halved. */
  async readEach(chunks: readonly ChunkRef[]): Promise<Leaf[]> {
    const read = chunks.map((chunk, index) => this.readOrHalve(chunk, index + 1, chunks.length));
    return (await Promise.all(read)).flat();
  }

  /** Requests notes on each chunk, in order. The notes on half a chunk get half the length. */
  async note(
    chunks: readonly ChunkRef[],
    lengths: readonly number[],
    notesFor: (index: number) => NotesStep,
  ): Promise<Leaf[]> {
    const noted = chunks.map((chunk, index) =>
      this.noteOrHalve(chunk, lengths[index] ?? 0, notesFor(index), { number: index + 1, of: chunks.length }),
    );
    return (await Promise.all(noted)).flat();
  }

  async changeState(step: StateStep): Promise<DigestRef | null> {
    const label = `state after ${step.digests.length} notes`;
    const changes = await this.inTurn(() => this.steps.changeState(step, label));
    if (changes) this.used.push(changes);
    return changes;
  }

  /** Merges neighbouring digests into one. At the root, merges them and the previous snapshot into the new snapshot. */
  async merge(
    members: readonly { key: string; tokens: number }[],
    about: { root: boolean; maxTokens: number; notes?: boolean },
    where: string,
  ): Promise<DigestRef> {
    const digests = members.map(({ key }) => key);
    const coveredTokens = members.reduce(
      (sum, { key, tokens }) => sum + (this.covered.get(key) ?? tokens),
      0,
    );
    const foldGeneration = about.root ? this.plan.foldGeneration : null;
    const label = `${about.root ? 'snapshot' : 'merge'} of ${digests.length} digests · ${where}`;
    const rulesServe = about.notes === true && this.plan.fallback === 'extractive';
    const step = { ...about, coveredTokens, digests, foldGeneration, ...(rulesServe ? { rulesServe } : {}) };
    const merged = await this.inTurn(() => this.steps.merge(step, label));
    this.used.push(merged);
    this.covered.set(merged.key, coveredTokens);
    return merged;
  }

  private async noteOrHalve(
    chunk: ChunkRef,
    maxTokens: number,
    notes: NotesStep,
    place: { number: number; of: number },
  ): Promise<Leaf[]> {
    const step = {
      ...{ chunk, fold: false, foldGeneration: null, maxTokens, notes },
      rulesServe: this.plan.fallback === 'extractive',
    };
    const { number, of } = place;
    const label = `notes ${number}/${of} · ${count(chunk.tokens)} → about ${count(maxTokens)} tokens`;
    try {
      const digest = await this.ask(step, label, place);
      return [{ chunk, digest }];
    } catch (error) {
      const halves = this.steps.overflow(error)?.halves;
      if (!halves) throw error;
      const [first, second] = halves;
      const length = Math.ceil(maxTokens / 2);
      const alone = { ...notes, stateTokens: null };
      const middle = { ...alone, before: { throughSeq: first.throughSeq, key: null } };
      const both = [
        this.noteOrHalve(first, length, { ...alone, followsFromSeq: null }, place),
        this.noteOrHalve(second, length, middle, place),
      ];
      return (await Promise.all(both)).flat();
    }
  }

  private async readOrHalve(chunk: ChunkRef, number: number, of: number): Promise<Leaf[]> {
    try {
      return [{ chunk, digest: await this.read(chunk, { number, of, fold: false }) }];
    } catch (error) {
      const halves = this.steps.overflow(error)?.halves;
      if (!halves) throw error;
      return (await Promise.all(halves.map((half) => this.readOrHalve(half, number, of)))).flat();
    }
  }

  private async read(
    chunk: ChunkRef,
    { number, of, fold }: { number: number; of: number; fold: boolean },
  ): Promise<DigestRef> {
    const { summarizer, foldGeneration, fallback } = this.plan;
    const maxTokens = fold ? summarizer.snapshotTokens : summarizer.digestTokens;
    const rulesServe = fallback === 'extractive' && !fold;
    const label = `chunk ${number}/${of}${fold ? ' and fold' : ''} · ${count(chunk.tokens)} → at most ${count(maxTokens)} tokens`;
    const step = { chunk, fold, foldGeneration, maxTokens, rulesServe };
    return this.ask(step, label, { number, of });
  }

  private async ask(
    step: ChunkStep,
    label: string,
    { number, of }: { number: number; of: number },
  ): Promise<DigestRef> {
    const { tokens } = step.chunk;
    const digest = await this.inTurn(() => this.steps.readChunk(step, label));
    this.used.push(digest);
    this.covered.set(digest.key, tokens);
    this.progress.chunk(number, of, tokens, digest.tokens);
    return digest;
  }
}

/** Runs at most `most` tasks at once, in the order of their calls. */
function limiter(most: number): <T>(task: () => Promise<T>) => Promise<T> {
  let running = 0;
  const waiting: (() => void)[] = [];
  return async (task) => {
    if (running >= most) await new Promise<void>((resolve) => waiting.push(resolve));
    else running++;
    try {
      return await task();
    } finally {
      const next = waiting.shift();
      if (next) next();
      else running--;
    }
  };
}
