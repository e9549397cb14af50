import type { PolicyInput } from '../../policy/schema.js';
import { argument, type CommandGroup } from '../command/command.js';
import type { PolicyFlags } from '../command/flags.js';
import type { Run } from '../command/run.js';

const collect = (value: string, before: string[] = []): string[] => [...before, value];

export function addPolicyCommands(group: CommandGroup): void {
  const policy = group.below({
    name: 'policy',
    summary: 'read and replace policies',
    description:
      'A session follows what its own policy says, then its tenant’s, then what the deployment says, then the defaults.',
    examples: [
      ['palimpsest policy get ticket-4711', 'as given for this session'],
      [
        `palimpsest policy set --window 128000 --trigger 0.8`,
        'for every session of the tenant that says nothing else',
      ],
    ],
  });
  addGet(policy);
  addSet(policy);
  const pins = group.below({
    name: 'pins',
    summary: 'texts carried word for word in every head',
    description: "Lists and changes the pins of a session's own policy.",
    examples: [
      ['palimpsest pins list ticket-4711', 'what is pinned'],
      [`palimpsest pins add ticket-4711 'Never refund above 100 EUR.'`, 'one more'],
    ],
  });
  addPins(pins);
}

function addGet(group: CommandGroup): void {
  group.add(
    {
      name: 'get',
      arguments: '[session]',
      summary: 'the policy as given',
      description:
        'Prints the policy as it was given for the session, or for the tenant where no session is named: {} where it ' +
        'says nothing. `palimpsest status SESSION --knobs` shows every effective value.',
      examples: [
        ['palimpsest policy get ticket-4711 --json | jq .policy > policy.json', 'to edit it'],
        ['palimpsest policy get', "the tenant's"],
      ],
    },
    async (run, args) => {
      const client = await run.client();
      const found =
        args[0] === undefined ? await client.tenantPolicy() : await client.policy({ session: args[0] });
      if (run.json) return run.out.value(found);
      await run.out.content(`${JSON.stringify(found.policy, null, 2)}\n`);
      run.out.note(`version ${found.policyVersion}`);
    },
  );
}

function addSet(group: CommandGroup): void {
  group
    .add<PolicyFlags>(
      {
        name: 'set',
        arguments: '[session]',
        summary: 'replace the policy',
        description:
          'Replaces the policy of the session, or of the tenant where no session is named, as a whole. What is wrong is ' +
          'refused with the path of the field, and nothing changes. A session is measured again at once.',
        examples: [
          ['palimpsest policy set ticket-4711 --policy policy.json', 'from a file'],
          [
            `palimpsest policy set ticket-4711 --policy '{"preset":"zrb"}' --window 32000`,
            'from the command line',
          ],
          ['palimpsest policy set --trigger economic', "the tenant's"],
        ],
      },
      async (run, args, flags) => {
        const { invalid } = await import('../../errors.js');
        const { window, trigger, keep, policy: text } = flags;
        if ([window, trigger, keep, text].every((flag) => flag === undefined))
          throw invalid(
            'There is no policy to set.',
            '--policy',
            `Give --policy '{}' to go back to what lies below.`,
          );
        const { policyFromFlags } = await import('../command/flags.js');
        const policy = policyFromFlags(flags);
        const client = await run.client();
        const session = args[0];
        const set =
          session === undefined
            ? await client.configureTenant({ policy })
            : await client.configure({ session, policy });
        if (run.json) return run.out.value(set);
        await run.out.paragraph(`${session ?? `tenant ${run.tenant}`}: policy version ${set.policyVersion}.`);
      },
    )
    .option('--policy <json|file>', 'the policy as JSON, or a file that holds it')
    .option('--window <tokens>', "the agent model's context window")
    .option(
      '--trigger <spec>',
      'when to compact: 0.85, 6000 (tokens), economic, JSON; repeat for OR',
      collect,
    )
    .option('--keep <spec>', 'what stays verbatim: 0.25, 2000 (tokens), 6 (messages), or JSON');
}

type Pins = NonNullable<PolicyInput['pins']>;

function addPins(group: CommandGroup): void {
  group.add(
    {
      name: 'list',
      arguments: '<session>',
      summary: 'what is pinned',
      description: "Lists the pins of the session's own policy: texts, messages by seq, patterns.",
      examples: [
        ['palimpsest pins list ticket-4711', 'numbered'],
        ['palimpsest pins list ticket-4711 --json', 'as the policy has them'],
      ],
    },
    async (run, args) => {
      const { pins } = await (await run.client()).pins({ session: argument(args, 0, 'session') });
      await showPins(run, pins);
    },
  );
  group
    .add<{ seq?: string[]; pattern?: string[] }>(
      {
        name: 'add',
        arguments: '<session> [text...]',
        summary: 'pin texts, messages or patterns',
        description:
          'Adds pins: texts, messages by --seq, patterns that are matched in user and system messages.',
        examples: [
          [`palimpsest pins add ticket-4711 'Never refund above 100 EUR.'`, 'a text'],
          [`palimpsest pins add ticket-4711 --seq 3 --pattern 'Rule \\d+: .*'`, 'a message, and every rule'],
        ],
      },
      async (run, args, { seq = [], pattern = [] }) => {
        const { invalid } = await import('../../errors.js');
        const { wholeNumber } = await import('../terminal/numbers.js');
        const added: Pins = [
          ...args.slice(1),
          ...seq.map((text) => ({ seq: wholeNumber(text, '--seq', { least: 1 }) })),
          ...pattern.map((text) => ({ pattern: text })),
        ];
        if (added.length === 0)
          throw invalid('There is nothing to pin.', 'text', 'Give a text, --seq or --pattern.');
        await changePins(run, argument(args, 0, 'session'), (pins) => [...pins, ...added]);
      },
    )
    .option('--seq <seq>', 'the text of this message; repeat for several', collect)
    .option(
      '--pattern <pattern>',
      'what matches this in user and system messages; repeat for several',
      collect,
    );
  group.add(
    {
      name: 'remove',
      arguments: '<session> <number>',
      summary: 'unpin',
      description: 'Removes one pin by its number in `pins list`.',
      examples: [
        ['palimpsest pins remove ticket-4711 2', 'the second'],
        ['palimpsest pins list ticket-4711', 'what is left'],
      ],
    },
    async (run, args) => {
      const { numberArgument } = await import('../command/command.js');
      const number = numberArgument(args, 1, 'number', { least: 1 });
      await changePins(run, argument(args, 0, 'session'), async (pins) => {
        const { invalid } = await import('../../errors.js');
        if (number > pins.length)
          throw invalid(`There is no pin ${number}.`, 'number', `There are ${pins.length}.`);
        return pins.filter((_, index) => index !== number - 1);
      });
    },
  );
}

async function changePins(
  run: Run,
  session: string,
  change: (pins: Pins) => Pins | Promise<Pins>,
): Promise<void> {
  const client = await run.client();
  const { pins } = await client.pins({ session });
  const changed = await change(pins);
  await client.pin({ session, pins: changed });
  await showPins(run, changed);
}

async function showPins({ out, json }: Run, pins: Pins): Promise<void> {
  if (json) return out.value({ pins });
  if (pins.length === 0) return out.note('Nothing is pinned.');
  for (const [index, pin] of pins.entries())
    await out.paragraph(`${index + 1}  ${typeof pin === 'string' ? pin : JSON.stringify(pin)}`);
}
