import type { CompactionOutcome } from '../../contract/workflows.js';
import { argument, type CommandGroup, numberArgument } from '../command/command.js';
import { wholeNumber } from '../terminal/numbers.js';
import { exitCodes, type Run } from '../command/run.js';

/** What changes a session: its head, its life. */
export function addCompactionCommands(group: CommandGroup): void {
  addCompact(group);
  addResummarize(group);
  addRestore(group);
  addFork(group);
  addPause(group);
  addClose(group);
  addErase(group);
}

function addCompact(group: CommandGroup): void {
  group
    .add<{ exitCode?: boolean }>(
      {
        name: 'compact',
        arguments: '<session>',
        summary: 'compact now, whatever the size',
        description:
          'Compacts now, or joins a compaction that is running, and waits for the outcome; Ctrl-C ends the waiting, not ' +
          'the compaction. Nothing to do is no failure: it says so, and --json prints null.',
        examples: [
          ['palimpsest compact ticket-4711', 'by hand'],
          [
            'palimpsest compact ticket-4711 --exit-code || [ $? -eq 3 ]',
            'in a script: 3 where there was nothing to do',
          ],
        ],
      },
      async (run, args, { exitCode }) => {
        const session = argument(args, 0, 'session');
        return outcome(run, session, await (await run.client()).compact({ session }), exitCode);
      },
    )
    .option('--exit-code', 'exit with 3 where there was nothing to do');
}

function addResummarize(group: CommandGroup): void {
  group
    .add<{ exitCode?: boolean }>(
      {
        name: 'resummarize',
        arguments: '<session>',
        summary: 'a model writes anew what the fallback wrote',
        description:
          'Evicts nothing: a model writes anew, from the archive, what the extractive fallback wrote while no model ' +
          'answered. The next compaction does the same by itself.',
        examples: [
          ['palimpsest resummarize ticket-4711', 'after an outage of the model'],
          [
            'palimpsest sessions --all --json | jq -r .session | xargs -n1 palimpsest resummarize',
            'for all; where there is nothing to do nothing happens',
          ],
        ],
      },
      async (run, args, { exitCode }) => {
        const session = argument(args, 0, 'session');
        return outcome(run, session, await (await run.client()).resummarize({ session }), exitCode);
      },
    )
    .option('--exit-code', 'exit with 3 where there was nothing to do');
}

async function outcome(
  run: Run,
  session: string,
  done: CompactionOutcome | null,
  exitCode = false,
): Promise<number> {
  if (run.json) await run.out.value(done);
  else if (done === null) await run.out.paragraph(`${session}: nothing to do, the context stays as it is.`);
  else await (await import('../pages/outcome-page.js')).showOutcome(run.out, session, done);
  return done === null && exitCode ? exitCodes.nothing : exitCodes.done;
}

function addRestore(group: CommandGroup): void {
  group.add(
    {
      name: 'restore',
      arguments: '<session> <generation>',
      summary: 'make an earlier generation the present one',
      description:
        'Commits a new generation with the head of an earlier one; 0 brings the whole log back. Nothing is deleted, so ' +
        'this can be undone in the same way.',
      examples: [
        ['palimpsest restore ticket-4711 3', 'what it was after its third compaction'],
        ['palimpsest restore ticket-4711 0', 'as if it had never been compacted'],
      ],
    },
    async (run, args) => {
      const session = argument(args, 0, 'session');
      const generation = numberArgument(args, 1, 'generation');
      return outcome(run, session, await (await run.client()).restore({ session, generation }));
    },
  );
}

function addFork(group: CommandGroup): void {
  group
    .add<{ through: string; to: string }>(
      {
        name: 'fork',
        arguments: '<session>',
        summary: 'a new session with the log up to a message',
        description:
          'Makes a new session with log, compactions and policy of another up to a message: rewind and regenerate. ' +
          'The same fork twice is made once.',
        examples: [
          [
            'palimpsest fork ticket-4711 --through 118 --to ticket-4711-b',
            'everything after message 118 is left out',
          ],
          ['palimpsest search ticket-4711 "wrong turn" --json | jq .hits[0].seq', 'where was that?'],
        ],
      },
      async (run, args, { through, to }) => {
        const session = argument(args, 0, 'session');
        const throughSeq = wholeNumber(through, '--through', { least: 1 });
        const forked = await (await run.client()).fork({ session, throughSeq, to });
        if (run.json) return run.out.value(forked);
        const made = forked.repeated ? 'was made before' : 'is made';
        await run.out.paragraph(
          `${forked.session} ${made}: ${forked.messages} messages, generation ${forked.generation}.`,
        );
      },
    )
    .requiredOption('--through <seq>', 'last message that the new session takes over')
    .requiredOption('--to <id>', 'id of the new session');
}

function addPause(group: CommandGroup): void {
  group.add(
    {
      name: 'pause',
      arguments: '<session>',
      summary: 'begin no compaction until resume',
      description:
        'No compaction begins until `resume`; one in flight ends. Turns are stored, and contexts fit, as ever.',
      examples: [
        ['palimpsest pause ticket-4711', 'while somebody looks into it'],
        ['palimpsest resume ticket-4711', 'and on again'],
      ],
    },
    async (run, args) => {
      const session = argument(args, 0, 'session');
      await (await run.client()).pause({ session });
      await told(run, { session, paused: true }, `${session} is paused: no compaction begins until resume.`);
    },
  );
  group.add(
    {
      name: 'resume',
      arguments: '<session>',
      summary: 'let compactions begin again',
      description: 'Ends a pause, and has the session measured again.',
      examples: [
        ['palimpsest resume ticket-4711', 'after `pause`'],
        ['palimpsest status ticket-4711', 'what it does then'],
      ],
    },
    async (run, args) => {
      const session = argument(args, 0, 'session');
      await (await run.client()).resume({ session });
      await told(run, { session, paused: false }, `${session} is resumed.`);
    },
  );
}

function addClose(group: CommandGroup): void {
  group.add(
    {
      name: 'close',
      arguments: '<session>',
      summary: 'no further turns are expected',
      description:
        'Says that no further turns are expected: calls without an answer count as dead, the workflow ends when it is ' +
        'done. Everything stays readable, and a later turn opens the session again.',
      examples: [
        ['palimpsest close ticket-4711', 'when the conversation is over'],
        ['palimpsest context ticket-4711', 'still there'],
      ],
    },
    async (run, args) => {
      const session = argument(args, 0, 'session');
      await (await run.client()).closeSession({ session });
      await told(run, { session, closed: true }, `${session} is closed.`);
    },
  );
}

function addErase(group: CommandGroup): void {
  group
    .add<{ yes?: boolean; forks?: boolean }>(
      {
        name: 'erase',
        arguments: '<session>',
        summary: 'delete a session and all of it, for good',
        description:
          'Deletes the session with its originals, summaries and archive, and its workflow executions in Temporal. This ' +
          'cannot be undone. Asks first, and wants the id typed; --yes answers for you. Can be repeated after any doubt.',
        examples: [
          ['palimpsest erase ticket-4711', 'asks'],
          ['palimpsest erase ticket-4711 --forks', 'every session forked from it as well'],
          ['palimpsest erase ticket-4711 --yes --json', 'in a script'],
        ],
      },
      async (run, args, { yes, forks = false }) => {
        const session = argument(args, 0, 'session');
        const client = await run.client();
        if (!yes) {
          const { confirmErase } = await import('../terminal/input.js');
          await confirmErase(client, { session, forks }, run.signal);
        }
        const erased = await client.erase({ session, forks });
        const { erasedText } = await import('../pages/outcome-page.js');
        await told(run, { session, ...erased }, erasedText(session, erased));
      },
    )
    .option('--forks', 'its forks as well, and theirs')
    .option('--yes', 'do not ask');
}

async function told({ out, json }: Run, document: object, text: string): Promise<void> {
  await (json ? out.value(document) : out.paragraph(text));
}
