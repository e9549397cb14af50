import { programName } from '../../runtime/program.js';
import type { Role } from '../../conversation/message.js';
import { argument, type CommandGroup, numberArgument } from '../command/command.js';
import { exitCodes } from '../command/exit-codes.js';
import { oneOf, wholeNumber } from '../terminal/numbers.js';

const whole = (text: string | undefined, option: string, least: number, most?: number): number | undefined =>
  text === undefined ? undefined : wholeNumber(text, option, { least, most });

/** The commands that find, read and replay originals. */
export function addLogCommands(group: CommandGroup): void {
  addSearch(group);
  addTool(group);
  addReplay(group);
  addExport(group);
  addArchive(group);
  addExpand(group);
  addHistory(group);
}

interface SearchFlags {
  substring?: boolean;
  after?: string;
  role?: string;
  speaker?: string;
  tool?: string;
  from?: string;
  through?: string;
  limit?: string;
  offset?: string;
  exitCode?: boolean;
}

function addSearch(group: CommandGroup): void {
  group
    .add<SearchFlags>(
      {
        name: 'search',
        arguments: '<session> <query>',
        summary: 'find originals, evicted or not',
        description:
          'Finds messages of the archive and the tail that contain any word of the query; identifiers are also found by ' +
          'their parts. Messages that contain an identifier exactly as written come first, then messages with more words ' +
          'of the query, or rarer ones. A part of the query in double quotes must match exactly, ignoring case; with ' +
          '--substring the whole query must. The match is shown between « and ».',
        examples: [
          ['palimpsest search ticket-4711 "refund order" --after 1', 'words in any order, with the reply'],
          [
            `palimpsest search ticket-4711 '"refund order" bank'`,
            'the exact phrase, messages with "bank" first',
          ],
          [
            'palimpsest search ticket-4711 dog puppy --speaker Ada --from 2026-03',
            'messages of Ada since March',
          ],
          [
            `palimpsest search ticket-4711 --substring 'src/store/turns.ts' --tool read_file`,
            'an exact text',
          ],
        ],
      },
      async (run, args, flags) => {
        const session = argument(args, 0, 'session');
        const { roles } = await import('../../conversation/message.js');
        const role = flags.role === undefined ? undefined : oneOf<Role>(flags.role, '--role', roles);
        const found = await (
          await run.client()
        ).search({
          session,
          query: argument(args, 1, 'query'),
          ...(flags.substring ? { mode: 'substring' as const } : {}),
          ...{ role, speaker: flags.speaker, tool: flags.tool },
          ...rangeOf(flags),
          after: whole(flags.after, '--after', 0, 10),
          limit: whole(flags.limit, '--limit', 1, 50),
          offset: whole(flags.offset, '--offset', 0),
        });
        const code = flags.exitCode && found.hits.length === 0 ? exitCodes.nothing : exitCodes.done;
        if (run.json) await run.out.value(found);
        else await (await import('../pages/log-page.js')).showHits(run.out, found);
        return code;
      },
    )
    .option('--substring', 'match the whole query exactly, quotes included, ignoring case; newest first')
    .option('--after <number>', 'messages to show after each hit, up to 10 (default: 0)')
    .option('--role <role>', 'only messages of this role')
    .option('--speaker <name>', 'only messages with this name')
    .option('--tool <name>', 'only results of this tool, and the messages that call it')
    .option('--from <seq|date>', 'first message to search, by number or by day, month, time')
    .option('--through <seq|date>', 'last message to search')
    .option('--limit <number>', 'number of hits, up to 50 (default: 10)')
    .option('--offset <number>', 'hits to skip (default: 0)')
    .option('--exit-code', 'exit with 3 if nothing was found');
}

/** A text such as `2026-03` is a time; any other text must be the number of a message. */
function rangeOf({ from, through }: SearchFlags): {
  [bound in 'fromSeq' | 'throughSeq']?: number | undefined;
} & { [bound in 'from' | 'through']?: string | undefined } {
  const isDate = (text: string | undefined): boolean => /^\d{4}-/.test(text ?? '');
  return {
    ...(isDate(from) ? { from } : { fromSeq: whole(from, '--from', 1) }),
    ...(isDate(through) ? { through } : { throughSeq: whole(through, '--through', 1) }),
  };
}

function addTool(group: CommandGroup): void {
  group
    .add<{ call?: string; seq?: string; offset?: string; limit?: string }>(
      {
        name: 'tool',
        arguments: '<session>',
        summary: 'print the exact output of a tool',
        description:
          'Prints the original content of a tool result, named by its call id (as in the log or in the context), or of any ' +
          'message, named by its seq. The text is exact and is printed page by page.',
        examples: [
          ['palimpsest tool ticket-4711 --call call_9f2 > result.txt', 'the newest result of this call'],
          ['palimpsest tool ticket-4711 --seq 17 --offset 20000 --json', 'the second page of message 17'],
        ],
      },
      async (run, args, { call, seq, offset, limit }) => {
        const { invalid } = await import('../../errors.js');
        if ((call === undefined) === (seq === undefined))
          throw invalid('Name either --call or --seq.', '--call', `\`${programName()} search\` finds both.`);
        const reference =
          call === undefined ? { seq: wholeNumber(seq ?? '', '--seq', { least: 1 }) } : { callId: call };
        const response = await (
          await run.client()
        ).toolResponse({
          session: argument(args, 0, 'session'),
          ...reference,
          offset: whole(offset, '--offset', 0),
          limit: whole(limit, '--limit', 1),
        });
        if (run.json) return run.out.value(response);
        await (await import('../pages/log-page.js')).showResponse(run.out, response);
      },
    )
    .option('--call <id>', 'id of the call')
    .option('--seq <seq>', 'number of the message')
    .option('--offset <characters>', 'characters to skip (default: 0)')
    .option('--limit <characters>', 'number of characters (default: 20000)');
}

function addReplay(group: CommandGroup): void {
  group.add(
    {
      name: 'replay',
      arguments: '<session>',
      summary: 'print every original, in order',
      description:
        'Streams the whole log, archive parts first, and checks each message and part against its hash. Fails with ' +
        'Store.Corrupt if one does not match.',
      examples: [
        ['palimpsest replay ticket-4711 | less', 'to read'],
        ['palimpsest replay ticket-4711 --json | jq -c .message > log.jsonl', 'the messages alone'],
      ],
    },
    async (run, args) => {
      const messages = (await run.client()).replay({ session: argument(args, 0, 'session') });
      await (await import('../pages/log-page.js')).showMessages(run, messages);
    },
  );
}

function addExport(group: CommandGroup): void {
  group
    .add<{ out?: string }>(
      {
        name: 'export',
        arguments: '<session>',
        summary: 'write the file that the session was imported from',
        description:
          'Writes the file that the session was imported from: the same JSON or JSON lines, with the messages that ' +
          'were appended since. A session that was appended turn by turn becomes the list of its messages in its own ' +
          'format. The file ends with the last message that the log had when the export began.',
        examples: [
          ['palimpsest export ticket-4711 --out ticket-4711.json', 'as a file'],
          ['palimpsest export ticket-4711 | gzip > ticket-4711.json.gz', 'into a pipe'],
        ],
        notes:
          'Originals are exact: `redact` hides secrets from summaries, not from this file.\n' +
          'White space between values and the compression of the file are not kept. Data of the file other than\n' +
          'messages is as it was at the first import.',
      },
      async (run, args, { out }) => {
        const session = argument(args, 0, 'session');
        const { writeOutFile } = await import('../command/flags.js');
        const texts = (await run.client()).export({ session });
        if (out === undefined) {
          for await (const text of texts) await run.out.content(text);
          return;
        }
        const bytes = await writeOutFile(out, '--out', texts, run.signal);
        if (run.json) return run.out.value({ session, out, bytes });
        const { count } = await import('../terminal/numbers.js');
        await run.out.paragraph(`${out}: ${count(bytes)} bytes`);
      },
    )
    .option('--out <file>', 'write to this file, whole or not at all (default: standard output)');
}

function addArchive(group: CommandGroup): void {
  group.add(
    {
      name: 'archive',
      arguments: '<session> [part]',
      summary: 'list the archive parts, or print the originals of one',
      description:
        'Lists the archive parts with their ranges, sizes and hashes; with a part, streams and checks its originals.',
      examples: [
        ['palimpsest archive ticket-4711', 'the list'],
        ['palimpsest archive ticket-4711 2 --json > part-2.jsonl', 'the messages of part 2'],
      ],
    },
    async (run, args) => {
      const session = argument(args, 0, 'session');
      const client = await run.client();
      const page = await import('../pages/log-page.js');
      if (args[1] !== undefined) {
        const part = numberArgument(args, 1, 'part', { least: 1 });
        return page.showMessages(run, await client.archive({ session, part }));
      }
      const parts = await client.archive({ session });
      if (run.json) return run.out.value(parts);
      await page.showParts(run.out, parts);
    },
  );
}

function addExpand(group: CommandGroup): void {
  group
    .add<{ part?: string; from?: string; limit?: string; maxCharacters?: string }>(
      {
        name: 'expand',
        arguments: '<session>',
        summary: 'print a page of originals',
        description:
          'Prints a page of an archive part or of any range of the log, and checks each original against its hash. ' +
          'With --json it prints one document, which says where the next page begins.',
        examples: [
          ['palimpsest expand ticket-4711 --from 120 --limit 10', 'messages 120 to 129'],
          ['palimpsest expand ticket-4711 --part 2 --json | jq .nextSeq', 'the first page of part 2'],
        ],
      },
      async (run, args, flags) => {
        const expansion = await (
          await run.client()
        ).expand({
          session: argument(args, 0, 'session'),
          part: whole(flags.part, '--part', 1),
          fromSeq: whole(flags.from, '--from', 1),
          limit: whole(flags.limit, '--limit', 1, 1_000),
          maxCharacters: whole(flags.maxCharacters, '--max-characters', 1),
        });
        if (run.json) return run.out.value(expansion);
        await (await import('../pages/log-page.js')).showMessages(run, expansion.messages);
        if (expansion.nextSeq !== null) run.out.note(`the next page: --from ${expansion.nextSeq}`);
      },
    )
    .option('--part <number>', 'read only this archive part')
    .option('--from <seq>', 'first message (default: the first of the part, or of the log)')
    .option('--limit <number>', 'number of messages, up to 1000 (default: 50)')
    .option(
      '--max-characters <number>',
      'maximum length of the messages as JSON, in characters (default: 100000)',
    );
}

function addHistory(group: CommandGroup): void {
  group.add(
    {
      name: 'history',
      arguments: '<session>',
      summary: 'print the archive as Markdown',
      description:
        'Streams the evicted messages as Markdown, one section for each archive part. The output only grows at its ' +
        'end, unless an earlier generation is restored. With --json it prints one object on each line, `{"markdown": …}`.',
      examples: [
        ['palimpsest history ticket-4711 > history.md', 'as a file'],
        ['palimpsest history ticket-4711 | grep "^## "', 'the time of each part'],
      ],
    },
    async (run, args) => {
      const pieces = (await run.client()).historyLog({ session: argument(args, 0, 'session') });
      let shown = false;
      for await (const markdown of pieces) {
        shown = true;
        await (run.json ? run.out.value({ markdown }) : run.out.content(markdown));
      }
      if (!shown) run.out.note('Nothing has been archived yet.');
    },
  );
}
