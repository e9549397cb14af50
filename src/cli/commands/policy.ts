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
      'Settings come from the session’s own policy, then its tenant’s, then the deployment’s, then the defaults.',
    examples: [
      ['palimpsest policy get ticket-4711', 'the policy given for this session'],
      [
        `palimpsest policy set --window 128000 --trigger 0.8`,
        'for every session of the tenant without its own settings',
      ],
    ],
  });
  addGet(policy);
  addSet(policy);
  const pins = group.below({
    name: 'pins',
    summary: 'list and change pins, which every head carries',
    description:
      "Lists and changes the pins in a session's own policy. Every head carries them word for word.",
    examples: [
      ['palimpsest pins list ticket-4711', 'list the pins'],
      [`palimpsest pins add ticket-4711 'Never refund above 100 EUR.'`, 'add a pin'],
    ],
  });
  addPins(pins);
}

function addGet(group: CommandGroup): void {
  group.add(
    {
      name: 'get',
      arguments: '[session]',
      summary: 'print the policy as given',
      description:
        'Prints the policy as it was given for the session, or for the tenant if no session is named; {} means that it ' +
        'has no settings. `palimpsest status SESSION --knobs` shows every effective value.',
      examples: [
        ['palimpsest policy get ticket-4711 --json | jq .policy > policy.json', 'save it for editing'],
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
          'Replaces the whole policy of the session, or of the tenant if no session is named. An invalid policy is ' +
          'refused with the path of the field and changes nothing. A session is measured again at once.',
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
        if (args[0]?.trimStart().startsWith('{'))
          throw invalid(
            'The policy stands where a session is named.',
            '--policy',
            `Give it as --policy '${args[0]}'.`,
          );
        if ([window, trigger, keep, text].every((flag) => flag === undefined))
          throw invalid(
            'No policy is given.',
            '--policy',
            `Give --policy '{}' to return to the settings of the layers below.`,
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
    .option('--policy <json|file>', 'the policy as JSON, or a file that contains it')
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
      summary: 'list the pins',
      description: "Lists the pins in the session's own policy: texts, messages by seq, and patterns.",
      examples: [
        ['palimpsest pins list ticket-4711', 'with their numbers'],
        ['palimpsest pins list ticket-4711 --json', 'in the form of the policy'],
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
          'Adds pins: texts, messages by --seq, and patterns to match in user and system messages.',
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
        if (added.length === 0) throw invalid('No pin is given.', 'text', 'Give a text, --seq or --pattern.');
        await changePins(run, argument(args, 0, 'session'), (pins) => [...pins, ...added]);
      },
    )
    .option('--seq <seq>', 'pin the text of this message; repeat for several', collect)
    .option(
      '--pattern <pattern>',
      'pin matches of this in user and system messages; repeat for several',
      collect,
    );
  group.add(
    {
      name: 'remove',
      arguments: '<session> <number>',
      summary: 'unpin',
      description: 'Removes the pin with this number in `pins list`.',
      examples: [
        ['palimpsest pins remove ticket-4711 2', 'remove the second pin'],
        ['palimpsest pins list ticket-4711', 'list the remaining pins'],
      ],
    },
    async (run, args) => {
      const { numberArgument } = await import('../command/command.js');
      const number = numberArgument(args, 1, 'number', { least: 1 });
      await changePins(run, argument(args, 0, 'session'), async (pins) => {
        const { invalid } = await import('../../errors.js');
        if (number > pins.length)
          throw invalid(`Pin ${number} does not exist.`, 'number', `The session has ${pins.length}.`);
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
