import type { CompactionOutcome } from '../../contract/compactions.js';
import type { PalimpsestClient } from '../../contract/client.js';
import { argument, type CommandGroup, numberArgument } from '../command/command.js';
import { wholeNumber } from '../terminal/numbers.js';
import { exitCodes } from '../command/exit-codes.js';
import type { Run } from '../command/run.js';
import { addEraseMessages } from './erase-messages.js';

/** Commands that change a session. */
export function addCompactionCommands(group: CommandGroup): void {
  addCompact(group);
  addResummarize(group);
  addRestore(group);
  addFork(group);
  addPause(group);
  addClose(group);
  addErase(group);
  addEraseMessages(group);
}

function addCompact(group: CommandGroup): void {
  group
    .add<{ exitCode?: boolean }>(
      {
        name: 'compact',
        arguments: '<session>',
        summary: 'compact now, whatever the size',
        description:
          'Compacts now, or joins a running compaction, and waits for the outcome; Ctrl-C stops waiting, not ' +
          'the compaction. If there is nothing to do, the command says so and succeeds, and --json prints null.',
        examples: [
          ['palimpsest compact ticket-4711', 'now'],
          [
            'palimpsest compact ticket-4711 --exit-code || [ $? -eq 3 ]',
            'in a script that accepts 3, nothing to do',
          ],
        ],
      },
      async (run, args, { exitCode }) => {
        const session = argument(args, 0, 'session');
        return outcome(run, session, await (await run.client()).compact({ session }), exitCode);
      },
    )
    .option('--exit-code', 'exit with 3 if there was nothing to do');
}

function addResummarize(group: CommandGroup): void {
  group
    .add<{ exitCode?: boolean }>(
      {
        name: 'resummarize',
        arguments: '<session>',
        summary: 'let a model rewrite what the fallback wrote',
        description:
          'Evicts nothing: a model rewrites, from the archive, what the extractive fallback wrote while no model ' +
          'answered. The next compaction does the same automatically.',
        examples: [
          ['palimpsest resummarize ticket-4711', 'after an outage of the model'],
          [
            'palimpsest sessions --all --json | jq -r .session | xargs -n1 palimpsest resummarize',
            'for all sessions; those without such parts stay unchanged',
          ],
        ],
      },
      async (run, args, { exitCode }) => {
        const session = argument(args, 0, 'session');
        const client = await run.client();
        const done = await client.resummarize({ session });
        if (done === null && !run.json && (await isByRule(client, session))) {
          await run.out.paragraph(
            `${session}: the extraction rules wrote the summary, and no model could be asked: the worker has no ` +
              'OPENAI_API_KEY, or the policy or its limits allow no model.',
          );
          return exitCode ? exitCodes.nothing : exitCodes.done;
        }
        return outcome(run, session, done, exitCode);
      },
    )
    .option('--exit-code', 'exit with 3 if there was nothing to do');
}

/** Whether the newest summary has texts of the fallback. */
async function isByRule(client: PalimpsestClient, session: string): Promise<boolean> {
  const summaries = (await client.compactions({ session })).filter(({ method }) => method !== 'none');
  const newest = summaries.at(-1);
  return newest !== undefined && (newest.method === 'extractive' || newest.chunksByRule > 0);
}

async function outcome(
  run: Run,
  session: string,
  done: CompactionOutcome | null,
  exitCode = false,
): Promise<number> {
  if (run.json) await run.out.value(done);
  else if (done === null) await run.out.paragraph(`${session}: nothing to do, the context is unchanged.`);
  else await (await import('../pages/outcome-page.js')).showOutcome(run.out, session, done);
  return done === null && exitCode ? exitCodes.nothing : exitCodes.done;
}

function addRestore(group: CommandGroup): void {
  group.add(
    {
      name: 'restore',
      arguments: '<session> <generation>',
      summary: 'restore an earlier generation',
      description:
        'Commits a new generation with the head of an earlier one; 0 restores the whole log. Nothing is deleted, so ' +
        'this can be undone in the same way.',
      examples: [
        ['palimpsest restore ticket-4711 3', 'the head of its third compaction'],
        ['palimpsest restore ticket-4711 0', 'the whole log, as before any compaction'],
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
        summary: 'copy a session up to a message',
        description:
          'Creates a new session with the log, compactions and policy of another one up to a message, to rewind and regenerate. ' +
          'Repeating the same fork creates it only once.',
        examples: [
          [
            'palimpsest fork ticket-4711 --through 118 --to ticket-4711-b',
            'omit everything after message 118',
          ],
          ['palimpsest search ticket-4711 "wrong turn" --json | jq .hits[0].seq', 'find the message'],
        ],
      },
      async (run, args, { through, to }) => {
        const session = argument(args, 0, 'session');
        const throughSeq = wholeNumber(through, '--through', { least: 1 });
        const forked = await (await run.client()).fork({ session, throughSeq, to });
        if (run.json) return run.out.value(forked);
        const made = forked.repeated ? 'already exists' : 'was created';
        await run.out.paragraph(
          `${forked.session} ${made}: ${forked.messages} messages, generation ${forked.generation}.`,
        );
      },
    )
    .requiredOption('--through <seq>', 'last message of the new session')
    .requiredOption('--to <id>', 'id of the new session');
}

function addPause(group: CommandGroup): void {
  group.add(
    {
      name: 'pause',
      arguments: '<session>',
      summary: 'start no compaction until resume',
      description:
        'No compaction starts until `resume`; a running one finishes. Turns are still stored, and contexts still fit.',
      examples: [
        ['palimpsest pause ticket-4711', 'during an investigation'],
        ['palimpsest resume ticket-4711', 'allow compactions again'],
      ],
    },
    async (run, args) => {
      const session = argument(args, 0, 'session');
      await (await run.client()).pause({ session });
      await told(run, { session, paused: true }, `${session} is paused: no compaction starts until resume.`);
    },
  );
  group.add(
    {
      name: 'resume',
      arguments: '<session>',
      summary: 'allow compactions again',
      description: 'Ends a pause and measures the session again.',
      examples: [
        ['palimpsest resume ticket-4711', 'after `pause`'],
        ['palimpsest status ticket-4711', 'its state afterwards'],
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
      summary: 'mark a session as finished',
      description:
        'Declares that no further turns are expected: calls without a result count as abandoned, and the workflow ends when ' +
        'it is done. Everything stays readable, and a later turn reopens the session.',
      examples: [
        ['palimpsest close ticket-4711', 'at the end of the conversation'],
        ['palimpsest context ticket-4711', 'the context is still readable'],
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
        summary: 'delete a session permanently',
        description:
          'Deletes the session with its originals, summaries and archive, and its workflow executions in Temporal. This ' +
          'cannot be undone. Asks for confirmation by the id; --yes skips the question. The command can safely be repeated.',
        examples: [
          ['palimpsest erase ticket-4711', 'ask for confirmation'],
          ['palimpsest erase ticket-4711 --forks', 'also erase every session forked from it'],
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
    .option('--forks', 'also erase its forks, and their forks')
    .option('--yes', 'do not ask');
}

async function told({ out, json }: Run, document: object, text: string): Promise<void> {
  await (json ? out.value(document) : out.paragraph(text));
}
