import { createHash } from 'node:crypto';
import type { ChatMessage, LoggedMessage } from '../../conversation/message.js';
import { PalimpsestError } from '../../errors.js';
import { acceptDigest, digestLimit } from '../../summary/answer/accept.js';
import {
  markFor,
  mergeNotesRequest,
  notesRequest,
  stateRequest,
  type AskedState,
} from '../../summary/ask/journal-prompts.js';
import { followingOf, hoursIn, recordOf } from '../../summary/ask/record.js';
import {
  changesOf,
  endOf,
  groundedNotes,
  linesWithin,
  readNotes,
  writeNotes,
} from '../../summary/journal/notes.js';
import { holdsChanges } from '../../summary/journal/state.js';
import { renderMessage } from '../../conversation/render.js';
import { digestKey, halveChunk, readBy, transcriptOf, type ChunkRef } from '../../summary/ask/chunk.js';
import { chunkRequest, foldRequest, mergeRequest, type SummaryRequest } from '../../summary/ask/prompts.js';
import { repairRequest, type RepairProblem } from '../../summary/ask/repair.js';
import { readAhead, sourcesIn } from '../../summary/origins/sources.js';
import { atOnce, type Steps } from '../../steps.js';
import { textSlices, type TokenCounter } from '../../tokens/counter.js';
import { answerText, groundOf, storable, type Asking } from './answers.js';
import { readable } from '../../summary/redaction/withheld.js';
import type { ChunkStep, DigestRef, MergeStep } from './model-steps.js';

/** A question to the summarizer: the key of its answer, the request, and the check of the answer. */
export interface Question {
  kind: 'chunk' | 'fold' | 'merge' | 'repair' | 'notes' | 'state';
  /** Content key, by which the same question finds the stored answer. */
  key: string;
  prepare: () => Promise<Prepared>;
}

export interface Prepared {
  request: SummaryRequest;
  /** Tokens of the request. */
  tokens: () => number;
  /** Computes during the model call, in steps, what `tokens` and `accept` need. */
  ahead: () => Steps<void>;
  /** The text to store. Throws `Llm.BadOutput` or `Summary.NotSmaller`. */
  accept: (answer: string) => string;
}

/** The snapshot that digests are merged with. */
export interface Previous {
  text: string;
  /** Hex. */
  sha256: string;
}

/** A message of a chunk: the hash of its original in hex, and the time when it was said. */
interface Member {
  seq: number;
  sha256: string;
  at?: string;
}

/**
 * The messages of a chunk as the summarizer reads them. A message in which something is redacted has the hash of its redacted
 * text, so that answers stay valid under any redaction that shows the summarizer the same text.
 */
async function shownMembers(
  { summarizer, redact }: Asking,
  members: readonly Member[],
  originals: () => Promise<readonly LoggedMessage[]>,
): Promise<{ members: readonly Member[]; readMessages: () => Promise<readonly LoggedMessage[]> }> {
  if (summarizer.redaction === '') return { members, readMessages: originals };
  const read = await originals();
  const messages = await readable(read, summarizer, redact);
  const hidden = new Map<number, string>();
  for (const [index, { seq, message }] of messages.entries())
    if (message !== read[index]?.message) hidden.set(seq, sha256Of(JSON.stringify(message)));
  return {
    members: members.map((one) => ({ ...one, sha256: hidden.get(one.seq) ?? one.sha256 })),
    readMessages: () => Promise.resolve(messages),
  };
}

function shownPrevious({ redact }: Asking, previous: Previous | null): Previous | null {
  const text = redact(previous?.text ?? '');
  return previous === null || text === previous.text ? previous : { text, sha256: sha256Of(text) };
}

function sha256Of(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** Minimum requested tokens of a digest. */
const shortestDigest = 64;

/** Requested tokens of a chunk's digest: a short chunk gets a shorter digest. */
export function digestTokens({ tokens }: ChunkRef, maxTokens: number): number {
  return Math.min(maxTokens, Math.max(shortestDigest, Math.floor(tokens / 2)));
}

export async function chunkQuestion(
  asking: Asking,
  step: ChunkStep,
  logged: readonly Member[],
  taken: Previous | null,
  originals: () => Promise<readonly LoggedMessage[]>,
): Promise<Question> {
  const { chunk, fold } = step;
  const { counter } = asking;
  const { members, readMessages } = await shownMembers(asking, logged, originals);
  const previous = shownPrevious(asking, taken);
  const kind = fold ? 'fold' : 'chunk';
  const maxTokens = digestTokens(chunk, step.maxTokens);
  const key = digestKey({
    ...keyParts(asking),
    kind,
    // Transcripts number their messages, so equal texts at other places are different questions.
    members: [
      ...snapshotMember(previous),
      `from ${chunk.fromSeq}`,
      ...members.map(({ seq, sha256 }) => sha256 + sliceOf(chunk, seq)),
    ],
    limits: { maxTokens, chunkTokens: asking.summarizer.chunkTokens },
  });
  return {
    kind,
    key,
    async prepare() {
      const messages = await readMessages();
      const transcript = transcriptOf(chunk, messages);
      const sources = once(() => readAhead(sourcesIn(readBy(chunk, messages), [before])));
      const requestWith = (text: string, before: string | null) =>
        fold
          ? foldRequest({
              previous: before,
              digests: [],
              transcript: text,
              key,
              maxTokens,
              prompt: asking.prompt,
            })
          : chunkRequest({ transcript: text, key, maxTokens, prompt: asking.prompt });
      const before = previous?.text ?? null;
      const inputTokens = once(() => tokensOf([transcript, before ?? ''], counter));
      const ground = once(() => groundOf([before, transcript], requestWith('', null)));
      return {
        request: requestWith(transcript, before),
        // Counts the material once, together with its surroundings.
        tokens: () => inputTokens() + countRequest(requestWith('', null), counter),
        ahead: ahead(inputTokens, ground, sources),
        accept: (answer) =>
          storable(asking, answer, {
            ...{ kind: fold ? 'draft' : 'digest', maxTokens, inputTokens: inputTokens() },
            ...{ ground: ground(), sources },
          }),
      };
    },
  };
}

export function mergeQuestion(
  asking: Asking,
  { digests, coveredTokens, root, maxTokens }: MergeStep,
  taken: Previous | null,
  textsOf: (keys: readonly string[]) => Promise<string[]>,
): Question {
  const { counter } = asking;
  const previous = shownPrevious(asking, taken);
  const kind = root ? 'fold' : 'merge';
  const key = digestKey({
    ...keyParts(asking),
    kind,
    members: [...snapshotMember(previous), ...digests],
    limits: { maxTokens },
  });
  return {
    kind,
    key,
    async prepare() {
      const texts = (await textsOf(digests)).map(asking.redact);
      const before = previous?.text ?? null;
      const asked = { digests: texts, key, maxTokens, prompt: asking.prompt };
      const request = root ? foldRequest({ ...asked, previous: before }) : mergeRequest(asked);
      const empty = { ...asked, digests: [] };
      const ground = once(() =>
        groundOf([before, ...texts], root ? foldRequest({ ...empty, previous: null }) : mergeRequest(empty)),
      );
      const inputTokens = coveredTokens + (before === null ? 0 : counter.count(before));
      const tokens = once(() => requestTokens(request, counter));
      return {
        request,
        tokens,
        ahead: ahead(tokens, ground),
        accept: (answer) =>
          storable(asking, answer, {
            ...{ kind: root ? 'draft' : 'digest', maxTokens, inputTokens },
            ground: ground(),
            sources: () => sourcesIn([], [before, ...texts]),
          }),
      };
    },
  };
}

/** The material in addition to a chunk. The answer's key excludes it: notes depend on the chunk alone. */
export interface NotesAround {
  before: { throughSeq: number; text: string | null } | null;
  follows: readonly LoggedMessage[];
  /** The current state, and the length of the next one; null if its changes are not requested. */
  state: AskedState | null;
}

export async function notesQuestion(
  asking: Asking,
  { chunk, maxTokens }: Pick<ChunkStep, 'chunk' | 'maxTokens'>,
  logged: readonly Member[],
  around: () => Promise<NotesAround>,
  originals: () => Promise<readonly LoggedMessage[]>,
): Promise<Question> {
  const { counter, redact, prompt } = asking;
  const { members, readMessages } = await shownMembers(asking, logged, originals);
  const hours = hoursIn(chunk, members);
  const shownAs = ({ seq, sha256 }: { seq: number; sha256: string }): string => {
    const hour = hours.get(seq);
    return `${sha256}${sliceOf(chunk, seq)}${hour === undefined ? '' : ` ${hour}`}`;
  };
  const key = digestKey({
    ...keyParts(asking),
    kind: 'notes',
    members: [`from ${chunk.fromSeq}`, ...members.map(shownAs)],
    limits: {},
  });
  return {
    kind: 'notes',
    key,
    async prepare() {
      const { before, follows, state } = await around();
      const messages = await readMessages();
      const staying = await readable(follows, asking.summarizer, redact);
      const mark = markFor(key, recordOf(chunk, messages, '') + followingOf(staying, ''));
      const transcript = recordOf(chunk, messages, mark);
      const asked = {
        before: before && { ...before, end: before.text === null ? null : redact(endOf(before.text)) },
        follows: followingOf(staying, mark),
        state: state && { ...state, text: redact(state.text) },
        hasCalls: messages.some(({ message }) => isOfTools(message)),
        hasHours: hours.size > 0,
        ...{ key, maxTokens, prompt },
      };
      const request = notesRequest({ ...asked, transcript });
      const inputTokens = once(() => tokensOf([transcript], counter));
      const ground = once(() =>
        groundOf([transcript], notesRequest({ ...asked, before: null, follows: '', transcript: '' })),
      );
      return {
        request,
        // Counts the material once, together with its surroundings.
        tokens: () => inputTokens() + countRequest(notesRequest({ ...asked, transcript: '' }), counter),
        ahead: ahead(inputTokens, ground),
        accept: (answer) => {
          const { notes: read, changes } = readNotes(answerText(asking, answer));
          const notes = linesWithin(read, digestLimit(maxTokens), counter);
          const size = { inputTokens: inputTokens(), maxTokens, counter };
          const accepted = acceptDigest(notes, { ...size, ground: ground() });
          const range = { fromSeq: chunk.fromSeq, throughSeq: chunk.throughSeq };
          const written = {
            notes: groundedNotes(accepted, range, messages),
            changes: state === null ? null : changes,
          };
          return redact(writeNotes(written, state === null ? '' : stateHash(state.text)));
        },
      };
    },
  };
}

function isOfTools({ role, tool_calls, function_call }: ChatMessage): boolean {
  return role === 'tool' || role === 'function' || (tool_calls ?? []).length > 0 || Boolean(function_call);
}

export function mergeNotesQuestion(
  asking: Asking,
  { digests, maxTokens }: Pick<MergeStep, 'digests' | 'maxTokens'>,
  textsOf: (keys: readonly string[]) => Promise<string[]>,
): Question {
  const { counter, redact, prompt } = asking;
  const key = digestKey({ ...keyParts(asking), kind: 'merge', members: digests, limits: { maxTokens } });
  return {
    kind: 'merge',
    key,
    async prepare() {
      const notes = (await textsOf(digests)).map((text) => redact(readNotes(text).notes));
      const request = mergeNotesRequest({ notes, key, maxTokens, prompt });
      const ground = once(() => groundOf(notes, mergeNotesRequest({ notes: [], key, maxTokens, prompt })));
      const tokens = once(() => requestTokens(request, counter));
      return {
        request,
        tokens,
        ahead: ahead(tokens, ground),
        accept: (answer) => {
          const read = readNotes(answerText(asking, answer)).notes;
          const merged = linesWithin(read, digestLimit(maxTokens), counter);
          const inputTokens = notes.reduce((sum, text) => sum + counter.count(text), 0);
          return redact(acceptDigest(merged, { inputTokens, maxTokens, counter, ground: ground() }));
        },
      };
    },
  };
}

/** Asks how notes change a state. Another state, or other notes, make a different question. */
export function stateQuestion(
  asking: Asking,
  digests: readonly string[],
  state: AskedState,
  follows: () => Promise<readonly LoggedMessage[]>,
  textsOf: (keys: readonly string[]) => Promise<string[]>,
): Question {
  const { counter, redact, prompt } = asking;
  const hash = stateHash(state.text);
  const key = digestKey({ ...keyParts(asking), kind: 'state', members: [hash, ...digests], limits: {} });
  return {
    kind: 'state',
    key,
    async prepare() {
      const notes = (await textsOf(digests)).map((text) => {
        const changes = changesOf(text, hash);
        return { notes: redact(readNotes(text).notes), changes: changes === null ? null : redact(changes) };
      });
      const staying = await readable(await follows(), asking.summarizer, redact);
      const following = followingOf(staying, markFor(key, followingOf(staying, '')));
      const asked = { text: redact(state.text), maxTokens: state.maxTokens };
      const request = stateRequest({ notes, follows: following, state: asked, key, prompt });
      const tokens = once(() => requestTokens(request, counter));
      return {
        request,
        tokens,
        ahead: ahead(tokens),
        accept: (answer) => {
          const text = answerText(asking, answer);
          const { notes: plain, changes: read } = readNotes(text);
          const changes = read ?? plain;
          const most = digestLimit(state.maxTokens) * 2;
          if (counter.count(text) > most)
            throw new PalimpsestError(
              'Summary.NotSmaller',
              'the changes of the state are longer than its limit',
            );
          // Lines without a known form count as progress. Their content must come from the notes, just as the content of notes
          // must come from the record.
          if (!holdsChanges(changes)) {
            const empty = { notes: [], follows: '', state: { ...asked, text: '' }, key, prompt };
            const told = notes.flatMap((one) => [one.notes, one.changes]);
            const ground = atOnce(groundOf([...told, asked.text], stateRequest(empty)));
            acceptDigest(changes, { inputTokens: Infinity, maxTokens: most, counter, ground });
          }
          return redact(writeNotes({ notes: '', changes }, hash));
        },
      };
    },
  };
}

/** The tokens of stored notes in the journal, and whether the answer has changes of this state. */
export function notedAs(
  stored: string,
  state: string,
  counter: TokenCounter,
): Pick<DigestRef, 'tokens' | 'changesState'> {
  const { notes } = readNotes(stored);
  return { tokens: counter.count(notes), changesState: changesOf(stored, stateHash(state)) !== null };
}

/** Identifies a state, in hex. */
export function stateHash(text: string): string {
  return sha256Of(text).slice(0, 16);
}

/** Asks for a shorter form of a snapshot that was too long. */
export function repairQuestion(
  asking: Asking,
  snapshotKey: string,
  problem: RepairProblem,
  found: () => Promise<{ snapshot: string }>,
): Question {
  const { counter } = asking;
  const maxTokens = asking.summarizer.snapshotTokens;
  const key = digestKey({
    ...keyParts(asking),
    kind: 'repair',
    members: [snapshotKey, problem],
    limits: { maxTokens },
  });
  return {
    kind: 'repair',
    key,
    async prepare() {
      const { snapshot } = await found();
      const asked = { maxTokens, key, prompt: asking.prompt };
      const request = repairRequest({ ...asked, snapshot });
      const tokens = once(() => requestTokens(request, counter));
      const ground = once(() => groundOf([snapshot], repairRequest({ ...asked, snapshot: '' })));
      return {
        request,
        tokens,
        ahead: ahead(tokens, ground),
        // There is no second repair: if the repaired snapshot is too long, the first one is used.
        accept: (answer) =>
          storable(asking, answer, {
            ...{ kind: 'snapshot', maxTokens, inputTokens: Infinity },
            ground: ground(),
            sources: () => sourcesIn([], [snapshot]),
          }),
      };
    },
  };
}

/** The two halves of a chunk that did not fit; null if it cannot be halved. */
export async function halvesOf(
  { counter, summarizer, redact }: Asking,
  chunk: ChunkRef,
  originals: readonly LoggedMessage[],
): Promise<[ChunkRef, ChunkRef] | null> {
  const items = (await readable(originals, summarizer, redact)).map((logged) => ({
    seq: logged.seq,
    tokens: logged.tokens,
    text: () => renderMessage(logged),
  }));
  return halveChunk(chunk, items, counter);
}

function keyParts({ tenant, summarizer, prompt }: Asking) {
  return { tenant, promptVersion: prompt.version, promptHash: prompt.hash, model: summarizer.model };
}

function snapshotMember(previous: Previous | null): string[] {
  return previous === null ? [] : [`snapshot ${previous.sha256}`];
}

/** The part of a message that the chunk reads; empty for the whole message. */
function sliceOf({ fromSeq, fromChar, throughSeq, throughChar }: ChunkRef, seq: number): string {
  const from = seq === fromSeq ? fromChar : 0;
  const to = seq === throughSeq ? throughChar : null;
  return from === 0 && to === null ? '' : `:${from}-${to ?? ''}`;
}

/** Tokens that the framing of a message takes. */
const FRAMING = 4;

/** Tokens of a request, including the framing of each message. */
export function countRequest({ messages }: SummaryRequest, counter: TokenCounter): number {
  return messages.reduce((sum, { content }) => sum + counter.count(content) + FRAMING, 0);
}

/** A value that is computed once: ahead in steps, or at once by the first who needs it. */
interface Once<Value> {
  (): Value;
  ahead(): Steps<void>;
}

function once<Value extends number | object>(work: () => Steps<Value>): Once<Value> {
  let done: Value | undefined;
  return Object.assign(() => (done ??= atOnce(work())), {
    *ahead() {
      done ??= yield* work();
    },
  });
}

/** Values that are computed one after the other. */
function ahead(...values: Once<unknown>[]): () => Steps<void> {
  return function* () {
    for (const value of values) {
      yield* value.ahead();
      yield;
    }
  };
}

function* tokensOf(texts: readonly string[], counter: TokenCounter): Steps<number> {
  let sum = 0;
  for (const slice of texts.flatMap((text) => [...textSlices(text)])) {
    sum += counter.count(slice);
    yield;
  }
  return sum;
}

/** Counts as `countRequest` does. */
function* requestTokens({ messages }: SummaryRequest, counter: TokenCounter): Steps<number> {
  const contents = messages.map(({ content }) => content);
  return (yield* tokensOf(contents, counter)) + FRAMING * messages.length;
}
