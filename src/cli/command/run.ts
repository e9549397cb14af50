import type { Pool } from 'pg';
import type { PalimpsestClient } from '../../contract/client.js';
import type { Config } from '../../config/config.js';
import { isFailure } from '../../errors.js';
import { findDatabase } from '../../process/servers.js';
import { apiOf, configFor, connectClient, type Globals } from './connect.js';
import { Interrupted, onInterrupt, ReaderGone } from '../terminal/input.js';
import { Output } from '../terminal/output.js';
import { errorLines, failureJson } from '../terminal/failures.js';
import { columnsOfTerminal } from '../terminal/style.js';
import { printable, wrapped } from '../terminal/table.js';
import { exitCodes } from './exit-codes.js';

/** One call of a command with its options, its output and its connections. A connection is opened at its first use. */
export class Run {
  readonly out: Output;
  /** Aborted by Ctrl-C, and when the reader of the output closes it. */
  readonly signal: AbortSignal;
  private connected: Promise<PalimpsestClient> | undefined;
  private pooled: Promise<Pool> | undefined;

  constructor(
    readonly globals: Globals,
    signal: AbortSignal,
  ) {
    this.signal = signal;
    this.out = new Output({ json: globals.json === true, color: globals.color });
  }

  get json(): boolean {
    return this.out.json;
  }

  get tenant(): string {
    return this.globals.tenant ?? 'default';
  }

  get overHttp(): boolean {
    return apiOf(this.globals) !== null;
  }

  get config(): Config {
    return configFor(this.globals);
  }

  client(): Promise<PalimpsestClient> {
    return (this.connected ??= connectClient(this.globals));
  }

  /** For commands that read the database only. */
  pool(): Promise<Pool> {
    return (this.pooled ??= (async () => {
      const { databaseUrl, ...roles } = await findDatabase(this.config);
      const { openPool } = await import('../../store/connection/pool.js');
      return openPool(databaseUrl, { ...roles, max: 4, applicationName: 'palimpsest cli' });
    })());
  }

  async close(): Promise<void> {
    await (await this.connected?.catch(() => undefined))?.close();
    await (await this.pooled?.catch(() => undefined))?.end();
  }
}

/** Runs a command and resolves to its exit code. Prints a failure on stderr, with `--json` also on stdout. */
export async function runCommand(
  globals: Globals,
  command: (run: Run) => Promise<number | void>,
): Promise<number> {
  const controller = onInterrupt();
  const { signal } = controller;
  const aborted = new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
  });
  aborted.catch(() => {});
  const run = new Run(globals, signal);
  try {
    const code = await Promise.race([command(run), aborted]);
    await Promise.race([run.close(), aborted]);
    return code ?? exitCodes.done;
  } catch (error) {
    if (error instanceof ReaderGone) return exitCodes.done;
    if (error instanceof Interrupted) {
      process.stderr.write('interrupted\n');
      return exitCodes.interrupted;
    }
    return tellFailure(error, globals.json === true);
  }
}

/** Prints the failure. Returns the exit code. */
export function tellFailure(error: unknown, json: boolean): number {
  const width = columnsOfTerminal(process.stderr) ?? Infinity;
  for (const line of errorLines(error).flatMap((text) => wrapped(printable(text), width)))
    process.stderr.write(`${line}\n`);
  if (!isFailure(error) && error instanceof Error && error.stack) process.stderr.write(`${error.stack}\n`);
  if (json) process.stdout.write(`${failureJson(error)}\n`);
  return isFailure(error, 'Input.Invalid') ? exitCodes.usage : exitCodes.failed;
}
