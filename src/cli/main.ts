#!/usr/bin/env node
import { Command, CommanderError } from 'commander';
import { isFailure } from '../errors.js';
import type { DevFlags } from './dev.js';
import type { PlanFlags } from './plan.js';
import { errorLines } from './report.js';

const collect = (value: string, before: string[] = []): string[] => [...before, value];

const planExamples = `
Examples:
  palimpsest plan session.jsonl --window 128000
  palimpsest plan session.jsonl --preset none --trigger 0.5 --svg sizes.svg
  palimpsest plan days.jsonl.gz --session s-17 --policy 'small={"trigger":{"tokens":20000}}' --cuts small
  palimpsest plan session.jsonl --prices input=3,summarizerInput=0.3
`;

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
    .command('plan')
    .description(
      'show for recorded sessions where each policy would cut, what it would cost and what stays; changes nothing, asks no model',
    )
    .argument('<files...>', 'OpenAI chat messages, as for dev')
    .option('--preset <names>', 'presets to compare, separated by commas; none: no preset (default: all)')
    .option('--policy <[name=]json|file>', 'one more policy to compare; repeat for several', collect)
    .option('--window <tokens>', "the agent model's context window, for every policy")
    .option('--trigger <spec>', 'one more policy, `flags`, that triggers so; as for dev', collect)
    .option('--keep <spec>', 'what stays verbatim under `flags`; as for dev')
    .option('--prices <spec>', 'money per million tokens: 3 (input), input=3,output=15, or JSON')
    .option('--session <id>', 'only this one of the sessions')
    .option('--cuts <policy>', 'show the messages around every cut of this policy')
    .option('--svg <file>', 'draw the context size over the turns, a line a policy (one session)')
    .option('--json', 'one JSON object a line for each session on stdout')
    .addHelpText('after', planExamples)
    .action(async (files: string[], flags: PlanFlags) => {
      const { plan } = await import('./plan.js');
      setCode(await plan(files, flags));
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
