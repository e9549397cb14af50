import { createInterface } from 'node:readline/promises';
import type { PalimpsestClient } from '../../contract/client.js';
import { invalid } from '../../errors.js';
import { plural } from './numbers.js';

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
