import { createInterface } from 'node:readline/promises';
import type { PalimpsestClient } from '../../contract/client.js';
import { invalid } from '../../errors.js';
import { plural } from './numbers.js';

/** One press of Ctrl-C reaches this process several times: from the terminal, and again through npm and tsx. */
const samePressMs = 1_000;

export class Interrupted extends Error {
  constructor() {
    super('interrupted');
  }
}

/** Whoever read our output had enough. */
export class ReaderGone extends Interrupted {}

/**
 * Aborted by the first Ctrl-C (or SIGTERM, or a reader of our output that went away), with an error where the output
 * cannot be written. A later press ends the process at once; what was in flight goes on at the next start.
 */
export function onInterrupt(): AbortController {
  const controller = new AbortController();
  let first = 0;
  const interrupt = (reason = new Interrupted()): void => {
    if (controller.signal.aborted) {
      if (Date.now() - first > samePressMs) process.exit(130);
      return;
    }
    first = Date.now();
    controller.abort(reason);
  };
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => interrupt());
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EPIPE') interrupt(new ReaderGone());
      else controller.abort(new Error(`the output cannot be written: ${error.message}`));
    });
  }
  return controller;
}

/** Says what will be gone, and wants the id typed. Throws `Input.Invalid` where it is not, or nobody can be asked. */
export async function confirmErase(
  client: PalimpsestClient,
  { session, forks }: { session: string; forks: boolean },
  signal: AbortSignal,
): Promise<void> {
  const { messages, generation } = await client.status({ session });
  if (!process.stdin.isTTY)
    throw invalid(
      `${session} was not erased: nobody can be asked, because standard input is no terminal.`,
      '--yes',
      'Add --yes to erase without being asked.',
    );
  const stored = `${plural(messages, 'message')} and ${plural(generation, 'generation')}`;
  const more = forks ? ', and every session forked from it,' : '';
  process.stderr.write(`This deletes ${stored} of ${session}${more} for good.\n`);
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  try {
    const typed = await lines.question('Type the id of the session to go on: ', { signal });
    if (typed.trim() === session) return;
    throw invalid(`${session} was not erased: what was typed is not its id.`, 'session');
  } finally {
    lines.close();
  }
}
