import { once } from 'node:events';
import { createWriteStream, type WriteStream } from 'node:fs';
import { formatNames } from '../../conversation/format-names.js';
import { invalid } from '../../errors.js';
import { importSessions } from '../../import/importer.js';
import type { ImportOptions, ImportReport } from '../../import/report.js';
import { querySource } from '../../import/rows.js';
import { fileSources, type Source } from '../../import/sources.js';
import { checkedDeployment } from '../../config/policy-sources.js';
import { assertMigrated } from '../../store/connection/migrate.js';
import { openPool } from '../../store/connection/pool.js';
import { findDatabase } from '../../process/servers.js';
import { refuseUrl } from '../command/connect.js';
import { checkOutFile, policyFromFlags } from '../command/flags.js';
import { showImport, type Imported } from '../pages/import-page.js';
import { oneOf, plural, wholeNumber } from '../terminal/numbers.js';
import { Progress } from '../terminal/progress.js';
import { exitCodes } from '../command/exit-codes.js';
import type { Run } from '../command/run.js';

/** The options of `palimpsest import`, as typed. */
export interface ImportFlags {
  format?: string;
  query?: string;
  from?: string;
  prefix?: string;
  policy?: string;
  concurrency?: string;
  maxSessionMb?: string;
  dryRun?: boolean;
  keepDuplicates?: boolean;
  keepOpen?: boolean;
  rejects?: string;
}

/** Number of refused sessions shown; `--rejects` has all of them. */
const mostShown = 20;

export async function importCommand(run: Run, paths: readonly string[], flags: ImportFlags): Promise<number> {
  refuseUrl(run.globals, 'import');
  const options = optionsOf(run, flags);
  const { databaseUrl } = await findDatabase(run.config);
  const sources = await sourcesOf(paths, flags, databaseUrl);
  const rejects = flags.rejects === undefined ? null : await opened(flags.rejects);
  const pool = openPool(databaseUrl, { max: options.concurrency + 1, applicationName: 'palimpsest import' });
  const watch = new Watch(sources);
  const imported = { byStatus: emptyCounts(), refused: [] as ImportReport[], tooLarge: 0 };
  const started = Date.now();
  const onReport = async (report: ImportReport): Promise<void> => {
    const counts = imported.byStatus[report.status];
    counts.messages += report.messages;
    counts.added += report.added;
    if (report.newestUser) imported.tooLarge++;
    watch.count(report);
    if (report.status === 'refused') {
      if (imported.refused.length < mostShown) imported.refused.push(report);
      if (rejects && !rejects.write(`${JSON.stringify(report)}\n`)) await once(rejects, 'drain');
    }
    if (run.json) await run.out.value(report);
  };
  run.signal.addEventListener('abort', () => watch.interrupted(), { once: true });
  try {
    await assertMigrated(pool);
    const totals = await importSessions(pool, sources, {
      ...options,
      signal: run.signal,
      onReport,
      onRead: (bytes) => watch.read(bytes),
    });
    watch.stop();
    const milliseconds = Date.now() - started;
    const { prefix, dryRun = false } = flags;
    if (run.json) await run.out.value({ total: { ...totals, milliseconds, dryRun } });
    else
      await showImport(run.out, {
        ...imported,
        totals,
        milliseconds,
        prefix,
        dryRun,
        rejects: flags.rejects,
      });
    return totals.refused > 0 ? exitCodes.failed : exitCodes.done;
  } finally {
    watch.stop();
    await Promise.all([pool.end(), rejects && ended(rejects)]);
  }
}

function optionsOf(run: Run, flags: ImportFlags): ImportOptions & { concurrency: number } {
  const { format, prefix, policy, concurrency = '4', maxSessionMb } = flags;
  const deployment = checkedDeployment(run.config.policy);
  return {
    tenant: run.tenant,
    concurrency: wholeNumber(concurrency, '--concurrency', { least: 1, most: 64 }),
    ...(format === undefined ? {} : { format: oneOf(format, '--format', formatNames) }),
    ...(prefix === undefined ? {} : { prefix }),
    ...(policy === undefined ? {} : { policy: policyFromFlags({ policy: policy.replace(/^@/, '') }) }),
    ...(deployment === undefined ? {} : { deployment }),
    ...(maxSessionMb === undefined
      ? {}
      : { longestSession: 1e6 * wholeNumber(maxSessionMb, '--max-session-mb', { least: 1, most: 500 }) }),
    dryRun: flags.dryRun === true,
    keepDuplicates: flags.keepDuplicates === true,
    keepOpen: flags.keepOpen === true,
  };
}

async function sourcesOf(
  paths: readonly string[],
  { query, from }: ImportFlags,
  databaseUrl: string,
): Promise<Source[]> {
  if (query === undefined && from !== undefined)
    throw invalid('--from names a database, but no query says what to import.', '--query', 'Add --query.');
  if (query === undefined && paths.length === 0)
    throw invalid(
      'Nothing to import was named.',
      undefined,
      'Name files, folders, - for standard input, or --query.',
    );
  const sources = await fileSources(paths);
  return query === undefined ? sources : [...sources, querySource(from ?? databaseUrl, query)];
}

const emptyCounts = (): Imported['byStatus'] => {
  const none = () => ({ messages: 0, added: 0 });
  return { stored: none(), extended: none(), present: none(), duplicate: none(), refused: none() };
};

/** Shows the share of bytes read, if their total is known. */
class Watch {
  private readonly progress = new Progress({ unit: 'KB' });
  private readonly total: number;
  private bytes = 0;
  private sessions = 0;
  private refused = 0;

  constructor(sources: readonly Source[]) {
    const isKnown = sources.every(({ size }) => size !== undefined && size > 0);
    this.total = isKnown ? sources.reduce((sum, { size = 0 }) => sum + size, 0) : 0;
  }

  read(bytes: number): void {
    this.bytes += bytes;
    this.show();
  }

  count({ status }: ImportReport): void {
    this.sessions++;
    if (status === 'refused') this.refused++;
    this.show();
  }

  interrupted(): void {
    this.stop();
    this.progress.say(`${plural(this.sessions, 'session')} done; run the same command again to continue`);
  }

  stop(): void {
    this.progress.stop();
  }

  private show(): void {
    const note = [plural(this.sessions, 'session'), this.refused > 0 ? `${this.refused} set aside` : ''];
    this.progress.update(
      Math.round(this.bytes / 1_000),
      Math.round(this.total / 1_000),
      note.filter(Boolean).join(' · '),
    );
  }
}

/** Checked before any work is done. */
async function opened(file: string): Promise<WriteStream> {
  checkOutFile(file, '--rejects');
  const stream = createWriteStream(file);
  await once(stream, 'open');
  return stream;
}

async function ended(stream: WriteStream): Promise<void> {
  stream.end();
  await once(stream, 'close');
}
