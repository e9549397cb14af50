import type { CommandGroup } from '../command/command.js';
import type { ImportFlags } from '../import/import.js';

export function addImportCommand(group: CommandGroup): void {
  group
    .add<ImportFlags>(
      {
        name: 'import',
        withoutApi: true,
        arguments: '[paths...]',
        summary: 'store old sessions in any format',
        description:
          'Reads files, folders, standard input or the rows of a query, and stores their sessions unchanged, in turns. Records that ' +
          'cannot be read are set aside with line and reason; the import continues. A repeated import skips what is stored and ' +
          'adds what is missing, so repeat it after an interruption.',
        examples: [
          ['palimpsest import exports/ --rejects rejects.jsonl', 'a folder with files in any formats'],
          [
            'zstd -dc sessions.jsonl.zst | palimpsest import - --prefix 2025-',
            'standard input, with a prefix for the ids',
          ],
          [
            `palimpsest import --from postgresql://chat-db/app --query 'select id, messages from conversations'`,
            'rows of another database',
          ],
          ['palimpsest import exports/ --dry-run --json', 'check everything without storing'],
        ],
        notes:
          'PATH is a file, a folder of .json, .jsonl, .ndjson and .traj files, or - for standard input. A file is JSON or JSONL,\n' +
          'also as .gz, with one session, several sessions, or the log of an agent. A query returns the columns id and messages\n' +
          '(one session per row), or id and message (one message per row, ordered by session and position).\n' +
          'Exit codes: 0 all sessions are stored, 1 some were set aside.\n' +
          'Nothing is compacted by an import: `palimpsest backfill start` does that.',
      },
      async (run, paths, flags) => (await import('../import/import.js')).importCommand(run, paths, flags),
    )
    .option('--format <name>', 'format of all sessions (default: detected for each)')
    .option('--query <sql>', 'import the rows of this query')
    .option('--from <url>', 'PostgreSQL for --query (default: the target of the import)')
    .option('--prefix <text>', 'prefix of every session id')
    .option('--policy <json|file>', 'policy of the new sessions')
    .option('--concurrency <number>', 'sessions stored concurrently, 1 to 64 (default: 4)')
    .option(
      '--max-session-mb <number>',
      'refuse sessions larger than this many million characters (default: 256)',
    )
    .option('--dry-run', 'read and check everything without storing')
    .option('--keep-duplicates', 'also store sessions whose messages exist under another id')
    .option('--keep-open', 'do not close the sessions, because their platform continues them')
    .option('--rejects <file>', 'write rejected records, one JSON object per line');
}
