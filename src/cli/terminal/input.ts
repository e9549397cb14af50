import { createInterface } from 'node:readline/promises';
import type { PalimpsestClient } from '../../contract/client.js';
import { invalid } from '../../errors.js';
import { plural } from './numbers.js';

/** One press of Ctrl-C reaches this process several times: from the terminal, and through npm and tsx. */
const samePressMs = 1_000;

export class Interrupted extends Error {
  constructor() {
    super('interrupted');
  }
}

/** The reader of our output closed it. */
export class ReaderGone extends Interrupted {}

/**
 * Returns a controller that the first Ctrl-C (or SIGTERM, or a closed output) aborts, with an error if the output cannot be
 * written. A later press ends the process at once; the next start resumes unfinished work.
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

/** Shows what will be deleted and asks for the id. Throws `Input.Invalid` if the id is wrong or input is not a terminal. */
export async function confirmErase(
  client: PalimpsestClient,
  { session, forks }: { session: string; forks: boolean },
  signal: AbortSignal,
): Promise<void> {
  const { messages, generation } = await client.status({ session });
  refuseWithoutTerminal(session);
  const stored = `${plural(messages, 'message')} and ${plural(generation, 'generation')}`;
  const more = forks ? ', and every session forked from it,' : '';
  process.stderr.write(`This deletes ${stored} of ${session}${more} permanently.\n`);
  if ((await answerTo('Type the id of the session to continue: ', signal)) === session) return;
  throw invalid(`${session} was not erased: the typed text is not its id.`, 'session');
}

/** Asks for the number of messages. Throws `Input.Invalid` if it is wrong or input is not a terminal. */
export async function confirmMessages(messages: number, signal: AbortSignal): Promise<void> {
  const what = plural(messages, 'message');
  refuseWithoutTerminal(what);
  process.stderr.write(`This erases ${what} and everything made of them permanently.\n`);
  if ((await answerTo('Type their number to continue: ', signal)) === String(messages)) return;
  throw invalid(`${what} not erased: the typed text is not their number.`, '--yes');
}

function refuseWithoutTerminal(what: string): void {
  if (process.stdin.isTTY) return;
  throw invalid(
    `${what} was not erased: standard input is not a terminal, so the command cannot ask for confirmation.`,
    '--yes',
    'Add --yes to erase without confirmation.',
  );
}

async function answerTo(question: string, signal: AbortSignal): Promise<string> {
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return (await lines.question(question, { signal })).trim();
  } finally {
    lines.close();
  }
}
