#!/usr/bin/env node
import { Command, CommanderError } from 'commander';
import { isFailure } from '../errors.js';
import type { DevFlags } from './dev.js';
import { errorLines } from './report.js';

const collect = (value: string, before: string[] = []): string[] => [...before, value];

/**
 * Each command loads what it needs when it runs: the Temporal SDK alone takes half a second.
 * Exit codes: 0 all went well, 1 something failed, 2 wrong usage, 130 interrupted before the job was done.
 */
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
    .action(async (files: string[], flags: DevFlags) => {
      const { dev } = await import('./dev.js');
      setCode(await dev(files, flags));
    });

  program
    .command('worker')
    .description('serve the task queues of DATABASE_URL and TEMPORAL_ADDRESS until SIGTERM')
    .action(async () => (await import('./serve.js')).serve());

  program
    .command('migrate')
    .description('bring the schema of DATABASE_URL up to date')
    .action(async () => (await import('./serve.js')).migrateSchema());
  return program;
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
