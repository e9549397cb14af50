import { existsSync } from 'node:fs';
import path from 'node:path';
import type { Config } from '../../config/config.js';
import { invalid } from '../../errors.js';
import type { PolicyInput } from '../../policy/schema.js';
import { makeDataFolder, packageRoot } from '../../runtime/home.js';
import { configFor, type Globals, refuseUrl } from '../command/connect.js';
import { type PolicyFlags, policyFromFlags } from '../command/flags.js';
import { openServers } from '../servers/servers.js';
import type { Stack } from '../servers/stack.js';
import { errorJson, errorLines } from '../terminal/failures.js';
import { Interrupted, onInterrupt } from '../terminal/input.js';
import { count, plural, seconds } from '../terminal/numbers.js';
import { Screen } from '../terminal/progress.js';
import {
  checkOut,
  compactedLine,
  compactionTable,
  contextToWrite,
  keepsExtractive,
  nextSteps,
  replayLine,
  rewriteLines,
  sessionJson,
  sessionLine,
  turnLine,
  warningLines,
  writeContexts,
  type WrittenContext,
} from './report.js';
import { type PlayedSession, type PlayEvents, playSession, storedSessionId } from './player.js';
import { codeOfUnreadable, type ReadTranscript, readTranscripts, type Transcript } from './transcripts.js';

export interface DevFlags
  extends PolicyFlags, Pick<Globals, 'databaseUrl' | 'temporalAddress' | 'url' | 'tenant'> {
  once?: boolean;
  /** False with `--no-play`. */
  play?: boolean;
  settle?: boolean;
  json?: boolean;
  out?: string;
}

/** Number of sessions played concurrently. */
const sessionsAtOnce = 8;

/** With more sessions, only one line is printed for each. */
const mostTables = 5;

/** Small enough that the bundled session compacts several times, and large enough to be realistic. */
const samplePolicy: PolicyInput = { contextWindow: 16_000 };

/**
 * `palimpsest dev` starts servers and worker, applies migrations, plays the given transcripts (or the bundled one, or none) and
 * stays up. Resolves to the exit code: 0 if every session succeeded, 2 if no session can be read because the input is invalid,
 * else 1. Throws `Input.Invalid` for flags.
 */
export async function dev(files: string[], flags: DevFlags): Promise<number> {
  const { play = true } = flags;
  if (!play) refuseToPlay(files, flags);
  const policy = policyFromFlags(flags, play && files.length === 0 ? samplePolicy : {});
  if (flags.out !== undefined) checkOut(flags.out);
  if (files.filter((file) => file === '-').length > 1)
    throw invalid('Standard input (-) can be read only once.', 'FILE');
  refuseUrl(flags, 'dev');
  const config = configFor(flags);
  const controller = onInterrupt();
  const session = new DevSession(config, policy, flags, controller);
  return session.run(play && files.length === 0 ? [bundledSample()] : files);
}

/** What only concerns transcripts is refused with `--no-play`. */
function refuseToPlay(files: string[], flags: DevFlags): void {
  const given = (['once', 'json', 'settle', 'out', 'window', 'trigger', 'keep', 'policy'] as const).find(
    (flag) => flags[flag] !== undefined && flags[flag] !== false,
  );
  if (files.length === 0 && given === undefined) return;
  throw invalid(
    `--no-play plays no transcript, but ${given === undefined ? 'a FILE' : `--${given}`} is given.`,
    '--no-play',
    'Leave one of the two out.',
  );
}

function bundledSample(): string {
  const sample = path.join(packageRoot(), 'examples/debugging-session.jsonl');
  if (!existsSync(sample))
    throw invalid(
      'The bundled sample session is missing from this installation.',
      'FILE',
      'Name a transcript file.',
    );
  return sample;
}

type Played = { read: ReadTranscript; result: PlayedSession } | { read: ReadTranscript; error: unknown };

class DevSession {
  private readonly screen: Screen;
  private succeeded = 0;
  private failed = 0;
  /** The id of a stored session to look at. */
  private shown: string | undefined;
  private readonly written: WrittenContext[] = [];
  /** Ids of stored sessions whose summaries a model has not written yet, although there is one. */
  private readonly extractive: string[] = [];

  constructor(
    private readonly config: Config,
    private readonly policy: PolicyInput,
    private readonly flags: DevFlags,
    private readonly controller: AbortController,
  ) {
    this.screen = new Screen(flags.json ? process.stderr : process.stdout);
  }

  /** `--json` is for scripts: it ends after the last session, like `--once`. */
  private get leaves(): boolean {
    return this.flags.once === true || this.flags.json === true;
  }

  async run(files: string[]): Promise<number> {
    const { screen, controller } = this;
    const reads = (await Promise.all(files.map((file) => readTranscripts(file)))).flat();
    const unreadable = reads.filter((read) => 'error' in read);
    if (unreadable.length > 0 && unreadable.length === reads.length) {
      for (const read of unreadable) this.tell({ read, error: read.error }, null);
      return codeOfUnreadable(unreadable);
    }
    let stack: Stack;
    try {
      makeDataFolder(this.config.dataDir);
      const say = (line: string) => screen.line(line);
      // The servers start while the SDK loads.
      const servers = openServers(this.config, say);
      servers.catch(() => {});
      const { openStack } = await import('../servers/stack.js');
      stack = await openStack(servers, this.config, this.policy, controller, {
        say,
        api: !this.leaves,
      });
    } catch (error) {
      // After Ctrl-C this error is not a failure: the terminal sends the signal to the child processes too, so that the step
      // that waits for one of them fails.
      if (controller.signal.reason instanceof Interrupted) {
        screen.line('interrupted');
        return 130;
      }
      if (this.flags.json)
        for (const read of reads)
          process.stdout.write(`${errorJson(read.id, 'error' in read ? read.error : error)}\n`);
      throw error;
    }
    try {
      screen.line();
      if (reads.length > 0) await this.playAll(reads, stack);
      if (this.flags.out !== undefined) this.writeOut(this.flags.out);
      if (!this.leaves && !controller.signal.aborted) await this.stay(stack);
    } finally {
      screen.redraw('stopping');
      const started = Date.now();
      await stack.close();
      screen.line(`stopped in ${seconds(Date.now() - started)}`);
    }
    const { aborted } = controller.signal;
    const reason: unknown = controller.signal.reason;
    if (aborted && !(reason instanceof Interrupted)) throw reason;
    if (aborted && this.leaves) return 130;
    return this.failed > 0 ? 1 : 0;
  }

  private async playAll(reads: ReadTranscript[], stack: Stack): Promise<void> {
    const { signal } = this.controller;
    const started = Date.now();
    const alone = reads.length === 1;
    let done = 0;
    const play = async (read: ReadTranscript): Promise<Played> => {
      const played = 'error' in read ? { read, error: read.error } : await this.play(read, stack, alone);
      done += 1;
      if (!alone) this.screen.redraw(`${done} of ${plural(reads.length, 'session')}`);
      return played;
    };
    const untold = new Set(reads);
    // Scripts get each session, with its id, as soon as it is done; people get them in the order they were named.
    const ordered = this.flags.json !== true;
    await inBatches(reads, { limit: sessionsAtOnce, signal, ordered }, play, (played) => {
      untold.delete(played.read);
      if ('error' in played && played.error instanceof Interrupted) return;
      this.tell(played, stack, reads.length);
    });
    const interrupted = signal.reason instanceof Interrupted;
    if (signal.aborted && !interrupted)
      for (const read of untold) this.tell({ read, error: signal.reason }, stack, reads.length);
    const place = new Map(reads.map(({ id }, index) => [id, index]));
    this.written.sort((a, b) => place.get(a.session)! - place.get(b.session)!);
    if (!alone) {
      const outcome = `${this.succeeded} succeeded, ${this.failed} failed`;
      this.screen.line(`${plural(reads.length, 'session')} in ${seconds(Date.now() - started)}: ${outcome}`);
    }
    for (const line of rewriteLines(this.extractive, { staysUp: !this.leaves, tenant: this.flags.tenant }))
      this.screen.line(line);
    if (interrupted) this.screen.line('interrupted; the next start continues where this one stopped');
  }

  private async play(read: Transcript, stack: Stack, alone: boolean): Promise<Played> {
    const { tenant } = this.flags;
    const palimpsest = tenant === undefined ? stack.palimpsest : stack.palimpsest.forTenant(tenant);
    const events = alone ? this.liveEvents(read) : {};
    const { signal } = this.controller;
    try {
      return {
        read,
        result: await playSession(palimpsest, read, this.policy, {
          events,
          settle: this.flags.settle ?? false,
          signal,
        }),
      };
    } catch (error) {
      return { read, error };
    }
  }

  private tell(played: Played, stack: Stack | null, sessions = 1): void {
    const { screen, flags } = this;
    const { id } = played.read;
    if ('error' in played) {
      this.failed += 1;
      if (flags.json) process.stdout.write(`${errorJson(id, played.error)}\n`);
      const [first, ...rest] = errorLines(played.error);
      screen.line(`${id}   error   ${first}`);
      for (const line of rest) screen.line(line);
      return;
    }
    const { result } = played;
    this.succeeded += 1;
    if ('messages' in played.read) {
      const stored = storedSessionId(played.read, this.policy);
      this.shown ??= stored;
      if (stack?.asksModel && keepsExtractive(result)) this.extractive.push(stored);
    }
    const ui = { url: stack?.uiUrl ?? null, namespace: this.config.temporal.namespace };
    if (flags.json) process.stdout.write(`${sessionJson(result, ui)}\n`);
    if (flags.out !== undefined) this.written.push(contextToWrite(id, result));
    screen.line(sessions === 1 ? '' : sessionLine(result));
    if (sessions <= mostTables && (sessions === 1 || result.compactions.length > 0)) {
      screen.line(compactionTable(result.compactions, ui, screen.columns));
    }
    for (const line of warningLines(result, sessions === 1 ? 20 : 3)) screen.line(line);
    if (sessions === 1) {
      screen.line(
        `context: ${plural(result.context.length, 'message')}, ${count(result.tokens)} of at most ${count(result.budget)} tokens`,
      );
      screen.line(replayLine(result));
    }
  }

  private liveEvents(transcript: Transcript): PlayEvents {
    const { screen } = this;
    screen.line(`session ${transcript.id}: ${plural(transcript.messages.length, 'message')}`);
    return {
      resumed: (stored, turns) => screen.line(`continues: ${stored} of ${turns} turns are stored already`),
      turn: (turn) => screen.line(turnLine(turn)),
      compacted: (outcome) => screen.line(`  ${compactedLine(outcome)}`),
      waiting: (generation, elapsed) =>
        screen.redraw(`  compacting → generation ${generation} (${elapsed.toFixed(0)} s)`),
      notice: (text) => screen.line(`  ${text}`),
    };
  }

  private writeOut(file: string): void {
    if (this.written.length === 0) return;
    try {
      writeContexts(file, this.written);
      this.screen.line(`context written to ${file}`);
    } catch (error) {
      this.failed += 1;
      const why = error instanceof Error ? error.message : String(error);
      this.screen.line(`--out: the context could not be written: ${why}`);
      this.screen.line(' Name a writable file. The sessions are stored, so the next start is quick.');
    }
  }

  private async stay(stack: Stack): Promise<void> {
    const { signal } = this.controller;
    const { tenant } = this.flags;
    this.screen.line();
    for (const line of nextSteps(stack, { session: this.shown, tenant }, this.config)) this.screen.line(line);
    // A pending promise alone does not keep the process alive if the worker stops polling.
    const alive = setInterval(() => {}, 60_000);
    await new Promise<void>((resolve) => {
      if (signal.aborted) resolve();
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
    clearInterval(alive);
  }
}

/**
 * Runs `work` on every item, at most `limit` concurrently. Yields the results in the order of the items; with `ordered: false`,
 * in the order in which they finish. Starts no more items once `signal` is aborted.
 */
export async function inBatches<Item, Result>(
  items: readonly Item[],
  { limit, signal, ordered }: { limit: number; signal: AbortSignal; ordered: boolean },
  work: (item: Item) => Promise<Result>,
  handOn: (result: Result) => void,
): Promise<void> {
  const waiting = new Map<number, Result>();
  let next = 0;
  let handed = 0;
  const lane = async (): Promise<void> => {
    while (next < items.length && !signal.aborted) {
      const index = next++;
      const result = await work(items[index] as Item);
      if (!ordered) {
        handOn(result);
        continue;
      }
      waiting.set(index, result);
      for (let ready = waiting.get(handed); ready !== undefined; ready = waiting.get(handed)) {
        waiting.delete(handed++);
        handOn(ready);
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, lane));
}
