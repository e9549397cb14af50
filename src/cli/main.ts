#!/usr/bin/env node
import { Command, CommanderError } from 'commander';
import pino from 'pino';
import { readConfig } from '../config.js';
import { invalid, isFailure } from '../errors.js';
import { migrate } from '../store/migrate.js';
import { startWorker } from '../worker.js';
import { dev, type DevFlags } from './dev.js';
import { onInterrupt } from './interrupt.js';
import { errorLines, plural } from './report.js';
import { installLoggedRuntime, serializers, workerSettings } from './stack.js';

const collect = (value: string, before: string[] = []): string[] => [...before, value];

/** Exit codes: 0 all went well, 1 something failed, 2 wrong usage, 130 interrupted before the job was done. */
function commands(setCode: (code: number) => void): Command {
  const program = new Command('palimpsest')
    .description('Durable conversation compaction for LLM agents.')
    .exitOverride()
    .showHelpAfterError('Try --help.');

  program
    .command('dev', { isDefault: true })
    .description(
      'bring up PostgreSQL, Temporal and a worker, play transcripts turn by turn, stay up until Ctrl-C',
    )
    .argument(
      '[files...]',
      'OpenAI chat messages: JSON, JSONL, .gz of these, - for standard input; none: the bundled session',
    )
    .option('--once', 'leave when the job is done')
    .option(
      '--json',
      'one JSON object a line for each session on stdout, progress on stderr; leaves when done',
    )
    .option('--out <file>', 'write the compacted context')
    .option('--window <tokens>', "the agent model's context window")
    .option(
      '--trigger <spec>',
      'when to compact: 0.85, 6000 (tokens), tokens=6000,messages=40, or JSON; repeat for OR',
      collect,
    )
    .option(
      '--keep <spec>',
      'what stays verbatim: 0.25, 2000 (tokens), 6 (messages), messages=6,fraction=0.25, or JSON',
    )
    .option('--policy <json|file>', 'every other knob of a policy')
    .action(async (files: string[], flags: DevFlags) => setCode(await dev(files, flags)));

  program
    .command('worker')
    .description('serve the task queues of DATABASE_URL and TEMPORAL_ADDRESS until SIGTERM')
    .action(worker);

  program
    .command('migrate')
    .description('bring the schema of DATABASE_URL up to date')
    .action(async () => {
      const applied = await migrate(required(readConfig().databaseUrl, 'DATABASE_URL'));
      console.log(applied === 0 ? 'The schema is up to date.' : `${plural(applied, 'migration')} applied.`);
    });
  return program;
}

async function worker(): Promise<void> {
  const config = readConfig();
  const databaseUrl = required(config.databaseUrl, 'DATABASE_URL');
  const address = required(config.temporal.address, 'TEMPORAL_ADDRESS');
  const { signal } = onInterrupt();
  const log = pino({ level: config.logLevel, serializers });
  installLoggedRuntime(log);
  const running = await startWorker(workerSettings(config, databaseUrl, { ...config.temporal, address }));
  log.info({ address, namespace: config.temporal.namespace }, 'worker is polling');
  signal.addEventListener('abort', () => void running.shutdown(), { once: true });
  await running.finished;
}

function required(value: string | undefined, variable: string): string {
  if (value !== undefined) return value;
  throw invalid(
    `${variable} is not set.`,
    variable,
    'This command needs running servers; `palimpsest dev` brings its own.',
  );
}

async function main(): Promise<number> {
  let code = 0;
  try {
    await commands((given) => (code = given)).parseAsync();
    return code;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    for (const line of errorLines(error)) console.error(line);
    if (!isFailure(error) && error instanceof Error && error.stack) console.error(error.stack);
    return isFailure(error, 'Input.Invalid') ? 2 : 1;
  }
}

process.exit(await main());
