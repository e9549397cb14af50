import type { PalimpsestClient } from '../../contract/client.js';
import type { FoundMessages, MessagesErased } from '../../contract/erasing.js';
import { invalid } from '../../errors.js';
import type { CommandGroup } from '../command/command.js';
import { exitCodes } from '../command/exit-codes.js';
import type { Run } from '../command/run.js';
import { count, plural } from '../terminal/numbers.js';

const collect = (value: string, before: string[] = []): string[] => [...before, value];

interface Flags {
  seq?: string[];
  search?: string;
  allSessions?: boolean;
  forks?: boolean;
  reason?: string;
  dryRun?: boolean;
  yes?: boolean;
}

export function addEraseMessages(group: CommandGroup): void {
  group
    .add<Flags>(
      {
        name: 'erase-messages',
        arguments: '[session]',
        summary: 'erase messages and everything made of them',
        description:
          'Replaces messages by tombstones, permanently: the messages of --seq, or those that contain the text of --search. ' +
          'Summaries of every generation that may repeat them are written again by rule, in the same transaction. Asks for ' +
          'confirmation; --yes skips the question. The command can safely be repeated.',
        examples: [
          ['palimpsest erase-messages ticket-4711 --seq 12 --seq 30-34 --dry-run', 'what would be replaced'],
          ['palimpsest erase-messages ticket-4711 --search ann@example.org', 'list the hits, then ask'],
          [
            'palimpsest erase-messages --all-sessions --search "Ann Smith" --forks --yes',
            'a person, everywhere',
          ],
        ],
        notes:
          'A search finds the exact text, not paraphrases. The command fails if a name that the platform gave (a call id, a\n' +
          'tool, a turn, a policy) still contains the text. Docs: docs/operating.md, "Erasing messages".',
      },
      (run, args, flags) => eraseMessages(run, args[0], flags),
    )
    .option('--seq <seqs>', 'a message, or a range such as 30-34; repeat for several', collect)
    .option('--search <text>', 'messages that contain this text anywhere')
    .option('--all-sessions', 'search every session of the tenant')
    .option('--forks', 'also in every session that shares the messages')
    .option('--reason <text>', 'stored and shown with each tombstone')
    .option('--dry-run', 'only say what would be erased')
    .option('--yes', 'do not ask');
}

async function eraseMessages(run: Run, session: string | undefined, flags: Flags): Promise<number> {
  const { seq = [], search, allSessions = false, forks, reason, dryRun = false, yes = false } = flags;
  if (seq.length > 0 === (search !== undefined))
    throw invalid('Give the messages either by --seq or by --search.', '--seq');
  if (allSessions === (session !== undefined) || (allSessions && search === undefined))
    throw invalid('Give a session, or --all-sessions with --search.', 'session');
  const client = await run.client();
  const found =
    search === undefined ? new Map<string, FoundMessages>() : await findIn(client, session, search);
  const wanted =
    search === undefined
      ? new Map([[session!, seqsOf(seq)]])
      : new Map(
          [...found].map(([id, { hits }]) => [id, hits.flatMap((hit) => (hit.erased ? [] : [hit.seq]))]),
        );
  for (const [id, seqs] of wanted) if (seqs.length === 0) wanted.delete(id);
  await tellHits(run, wanted);
  if (!dryRun && !yes && wanted.size > 0) {
    const { confirmMessages } = await import('../terminal/input.js');
    await confirmMessages([...wanted.values()].flat().length, run.signal);
  }
  const receipts: ({ session: string } & MessagesErased)[] = [];
  for (const [id, seqs] of wanted) {
    run.signal.throwIfAborted();
    receipts.push({
      session: id,
      ...(await client.eraseMessages({ session: id, seqs, forks, reason, dryRun })),
    });
  }
  const left =
    search === undefined || dryRun ? placesOf(found) : placesOf(await findIn(client, session, search));
  if (run.json) await run.out.value({ erased: receipts, left });
  else {
    for (const one of receipts) await run.out.paragraph(receiptText(one));
    for (const one of left)
      await run.out.paragraph(`${one.session}: the text stays in ${one.places.join(', ')}.`);
  }
  return !dryRun && left.length > 0 ? exitCodes.failed : exitCodes.done;
}

async function tellHits(run: Run, wanted: ReadonlyMap<string, readonly number[]>): Promise<void> {
  if (run.json) return;
  if (wanted.size === 0) return run.out.paragraph('No message to erase.');
  for (const [id, seqs] of wanted)
    await run.out.line(`${id}: ${plural(seqs.length, 'message')}: ${seqs.join(', ')}`);
}

async function findIn(
  client: PalimpsestClient,
  session: string | undefined,
  text: string,
): Promise<Map<string, FoundMessages>> {
  const found = new Map<string, FoundMessages>();
  if (session !== undefined) return found.set(session, await client.findMessages({ session, text }));
  for (let after: string | undefined; ;) {
    const page = await client.sessions({ after, limit: 1_000 });
    for (const one of page.sessions)
      found.set(one.session, await client.findMessages({ session: one.session, text }));
    if (page.next === null) return found;
    after = page.next;
  }
}

/** Places with the text that an erasure of messages does not change, by session. */
function placesOf(found: ReadonlyMap<string, FoundMessages>): { session: string; places: string[] }[] {
  return [...found].flatMap(([session, { hits, elsewhere }]) => {
    const names = hits
      .filter(({ erased }) => erased)
      .map(({ seq }) => `the call id or tool name of message ${seq}`);
    const places = [...names, ...elsewhere];
    return places.length === 0 ? [] : [{ session, places }];
  });
}

/** `12`, `30-34`. Throws `Input.Invalid`. */
function seqsOf(given: readonly string[]): number[] {
  const seqs = given.flatMap((text) => {
    const [, first, last = first] = /^(\d{1,9})(?:-(\d{1,9}))?$/.exec(text.trim()) ?? [];
    const [from, through] = [Number(first), Number(last)];
    if (!(from >= 1 && through >= from && through - from < mostSeqs))
      throw invalid(
        `--seq must be a message or a range, but is ${JSON.stringify(text)}`,
        '--seq',
        `Write 12 or 30-34, with at most ${count(mostSeqs)} messages.`,
      );
    return Array.from({ length: through - from + 1 }, (_, index) => from + index);
  });
  return [...new Set(seqs)].sort((a, b) => a - b);
}

const mostSeqs = 10_000;

function receiptText({ session, ...receipt }: { session: string } & MessagesErased): string {
  const { messages, already, generations, digests, reductions, forks, remaining, dryRun } = receipt;
  const now = messages.length - already.length;
  const verb = dryRun ? 'would be erased' : now === 1 ? 'is erased' : 'are erased';
  const before = already.length === 0 ? '' : ` (${count(already.length)} before)`;
  const made = [
    `${plural(generations.length, 'generation')} rewritten`,
    `${plural(digests, 'digest')} and ${plural(reductions, 'reduction')} deleted`,
  ].join(', ');
  const also = forks.length === 0 ? '' : ` Also in ${forks.map((fork) => fork.session).join(', ')}.`;
  const still =
    remaining.length === 0
      ? ''
      : ` ${dryRun && forks.length > 0 ? 'Before, they are' : 'They are still'} in ${remaining.map((one) => one.session).join(', ')}.`;
  return `${session}: ${plural(now, 'message')} ${verb}${before}; ${made}.${also}${still}`;
}
