import type { CommandGroup } from '../command/command.js';
import type { DevFlags } from '../play/dev.js';
import type { PlanFlags } from '../compare/plan.js';

const collect = (value: string, before: string[] = []): string[] => [...before, value];

const transcripts =
  'FILE holds one session or many, in any format that import reads: JSON, JSONL, .gz of these; a folder, or - for standard input.';

export function addDevCommands(group: CommandGroup): void {
  group
    .addLong<DevFlags>(
      {
        name: 'dev',
        arguments: '[files...]',
        summary: 'bring everything up and play transcripts',
        description:
          'Brings up PostgreSQL, Temporal, a worker and the API on this machine, plays transcripts turn by turn ' +
          '(the bundled one where none is named), and stays up until Ctrl-C. Without --url and without servers of their ' +
          'own, the other commands work on what runs here.',
        examples: [
          ['palimpsest dev', 'the bundled session, then look around in the Temporal UI'],
          ['palimpsest dev day.jsonl --window 32000 --once', 'your own sessions, and leave'],
        ],
        notes: transcripts,
      },
      async (files, flags) => (await import('../play/dev.js')).dev(files, flags),
    )
    .option('--once', 'leave when the job is done (--json does so, too)')
    .option('--settle', 'let every compaction commit before the next turn')
    .option('--out <file|folder>', 'write the compacted context; into a folder, with calls and tokens')
    .option('--window <tokens>', "the agent model's context window (default: 16000 for the bundled session)")
    .option(
      '--trigger <spec>',
      'when to compact: 0.85, 6000 (tokens), tokens=6000,messages=40, or JSON; repeat for OR',
      collect,
    )
    .option(
      '--keep <spec>',
      'what stays verbatim: 0.25, 2000 (tokens), 6 (messages), messages=6,fraction=0.25, or JSON',
    )
    .option('--policy <json|file>', 'every other knob of a policy');

  group
    .addLong<PlanFlags>(
      {
        name: 'plan',
        arguments: '<files...>',
        summary: 'compare policies on recorded sessions',
        description:
          'Shows for recorded sessions where each policy would cut, what it would cost and what stays. Changes nothing, ' +
          'asks no model, needs no server.',
        examples: [
          ['palimpsest plan session.jsonl --window 128000', 'the default, economic, and every preset'],
          [
            `palimpsest plan days.jsonl.gz --session s-17 --policy 'small={"trigger":{"tokens":20000}}' --cuts small`,
            'a policy of your own, with the messages around each cut',
          ],
          ['palimpsest plan session.jsonl --prices input=3,summarizerInput=0.3 --svg sizes.svg', 'in money'],
        ],
        notes: transcripts,
      },
      async (files, flags) => (await import('../compare/plan.js')).plan(files, flags),
    )
    .option('--preset <names>', 'presets to compare, separated by commas; none: no preset (default: all)')
    .option('--policy <[name=]json|file>', 'one more policy to compare; repeat for several', collect)
    .option('--window <tokens>', "the agent model's context window, for every policy")
    .option('--trigger <spec>', 'one more policy, `flags`, that triggers so; as for dev', collect)
    .option('--keep <spec>', 'what stays verbatim under `flags`; as for dev')
    .option('--prices <spec>', 'money per million tokens: 3 (input), input=3,output=15, or JSON')
    .option('--session <id>', 'only this one of the sessions')
    .option('--cuts <policy>', 'show the messages around every cut of this policy')
    .option('--svg <file>', 'draw the context size over the turns, a line a policy (one session)');
}
