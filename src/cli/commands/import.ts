import type { CommandGroup } from '../command/command.js';
import type { ImportFlags } from '../import/import.js';

export function addImportCommand(group: CommandGroup): void {
  group
    .add<ImportFlags>(
      {
        name: 'import',
        arguments: '[paths...]',
        summary: 'store old sessions of any format',
        description:
          'Reads files, folders, standard input or the rows of a query, and stores their sessions exactly, in turns. What ' +
          'cannot be read is set aside with its line and reason; the rest goes on. Run again, it finds what is there and ' +
          'adds what is missing, so an interrupted import is simply repeated.',
        examples: [
          ['palimpsest import exports/ --rejects rejects.jsonl', 'a folder, whatever formats its files have'],
          [
            'zstd -dc sessions.jsonl.zst | palimpsest import - --prefix 2025-',
            'standard input, ids prefixed',
          ],
          [
            `palimpsest import --from postgresql://chat-db/app --query 'select id, messages from conversations'`,
            'rows of another database',
          ],
          ['palimpsest import exports/ --dry-run --json', 'check everything, store nothing'],
        ],
        notes:
          'PATH is a file (JSON, JSONL, .gz of these: a session, many, or the log of an agent), a folder of .json, .jsonl,\n' +
          '.ndjson and .traj files, or - for standard input. A query answers the columns id and messages (a session a row),\n' +
          'or id and message (a message a row, ordered by session and position).\n' +
          'Exit codes: 0 all sessions are stored, 1 some were set aside.\n' +
          'Nothing is compacted by an import: `palimpsest backfill start` does that.',
      },
      async (run, paths, flags) => (await import('../import/import.js')).importCommand(run, paths, flags),
    )
    .option('--format <name>', 'format of all sessions (default: recognised for each)')
    .option('--query <sql>', 'import the rows that this answers')
    .option('--from <url>', 'PostgreSQL that --query asks (default: the one imported into)')
    .option('--prefix <text>', 'put this before every session id')
    .option('--policy <json|file>', 'policy of the new sessions')
    .option('--concurrency <number>', 'sessions stored at once, 1 to 64 (default: 4)')
    .option(
      '--max-session-mb <number>',
      'refuse sessions larger than this many million characters (default: 256)',
    )
    .option('--dry-run', 'read and check everything, store nothing')
    .option('--keep-duplicates', 'also store a session whose messages came under another id before')
    .option('--keep-open', 'do not close the sessions: their platform goes on with them')
    .option('--rejects <file>', 'write what was set aside, one JSON object a line');
}
