import { Command, Help, Option } from 'commander';
import { packageVersion } from '../../runtime/home.js';
import type { Globals } from './connect.js';
import { exitCodes } from './exit-codes.js';
import type { Run } from './run.js';
import { columnsOfTerminal, styleFor, wantsColour } from '../terminal/style.js';
import { wholeNumber, type Range } from '../terminal/numbers.js';

/** The declaration of a command: its help texts. */
export interface CommandText {
  /** In commander's syntax: `status`, `backfill list`. */
  name: string;
  /** `<session> [part]` */
  arguments?: string;
  /** A few words for the list of all commands. */
  summary: string;
  /** One or two sentences about its effect, its output and its changes. */
  description: string;
  /** Complete command lines as an operator would type them, each with its purpose. */
  examples: [line: string, what: string][];
  /** Shown below the examples. */
  notes?: string;
  /** It works on the servers, and refuses an API. */
  withoutApi?: true;
}

/** Meaning of each argument, the same for all commands. */
const argumentTexts: Record<string, string> = {
  session: 'id of a session of the tenant',
  generation: 'number of a generation, listed by `status` and `timeline`; 0 is the whole log',
  part: 'number of an archive part',
  query: 'words; a part in double quotes must match exactly',
  job: 'name of a backfill',
  owner: 'name of a tenant',
  name: 'name for people, such as the program that uses the token',
  id: 'id of a token, listed by `token list`',
  text: 'a text that every head carries word for word',
  shell: 'bash, zsh or fish',
};

/** Sets the exit code of the process. */
export type SetCode = (code: number) => void;

export class CommandGroup {
  constructor(
    private readonly parent: Command,
    private readonly setCode: SetCode,
    private readonly heading: string,
  ) {}

  /** Adds a command that gets a `Run`; options are declared on the returned command. */
  add<Flags extends object>(
    text: CommandText,
    run: (run: Run, args: string[], flags: Flags) => Promise<number | void>,
  ): Command {
    return this.addRaw(text, async (args, flags: Flags & Globals) => {
      const { runCommand } = await import('./run.js');
      this.setCode(await runCommand(flags, (given) => run(given, args, flags)));
    });
  }

  /** Adds a command that handles signals and output itself. */
  addLong<Flags extends object>(
    text: CommandText,
    run: (args: string[], flags: Flags & Globals) => Promise<number | void>,
  ): Command {
    return this.addRaw(text, async (args, flags: Flags & Globals) => {
      this.setCode(
        await run(args, flags).then(
          (code) => code ?? exitCodes.done,
          async (error: unknown) => (await import('./run.js')).tellFailure(error, false),
        ),
      );
    });
  }

  private addRaw<Flags extends object>(
    text: CommandText,
    run: (args: string[], flags: Flags & Globals) => Promise<void>,
  ): Command {
    const command = describe(this.parent.command(text.name), text).helpGroup(this.heading);
    return command.action(() => run(command.args, command.optsWithGlobals<Flags & Globals>()));
  }

  /** Adds a command for programs, which no help shows. */
  addHidden(name: string, args: string, run: (run: Run, args: string[]) => Promise<number | void>): void {
    const command = this.parent.command(name, { hidden: true }).arguments(args);
    command.action(async () => {
      const globals = command.optsWithGlobals<Globals>();
      const { runCommand } = await import('./run.js');
      this.setCode(await runCommand(globals, (given) => run(given, command.args)));
    });
  }

  /** Adds commands below one word, such as `backfill start`. */
  below(text: CommandText): CommandGroup {
    const command = describe(this.parent.command(text.name), text)
      .helpGroup(this.heading)
      .usage('COMMAND [options]');
    return new CommandGroup(command.helpCommand(false), this.setCode, 'Commands:');
  }
}

function describe(command: Command, text: CommandText): Command {
  command.summary(text.summary).description(text.description);
  for (const part of text.arguments?.split(' ') ?? []) {
    const name = part.replaceAll(/[<>[\].]/g, '');
    command.argument(part, argumentTexts[name] ?? '');
  }
  const examples = text.examples.map(([line, what]) => `  # ${what}\n  ${line}`);
  const notes = text.notes === undefined ? '' : `\n${text.notes}\n`;
  if (text.withoutApi) refusesApi.add(command);
  return command.addHelpText('after', `\nExamples:\n${examples.join('\n')}\n${notes}`);
}

const refusesApi = new WeakSet<Command>();
const ofApi: ReadonlySet<string | undefined> = new Set(['--url', '--token']);

function optionsOfAll(command: Command): Option[] {
  if (command.commands.length > 0) return [];
  const options = Help.prototype.visibleGlobalOptions.call(globalHelp, command);
  return refusesApi.has(command) ? options.filter(({ long }) => !ofApi.has(long)) : options;
}

const globalHeading = 'Options of every command:';

const globalOptions = (): Option[] => [
  new Option('--json', 'print only JSON on stdout: a document, or one object per line'),
  new Option('--tenant <name>', 'owner of the sessions (default: default)'),
  new Option('--database-url <url>', 'PostgreSQL (default: DATABASE_URL, otherwise that of a running `dev`)'),
  new Option('--temporal-address <host:port>', 'Temporal (default: TEMPORAL_ADDRESS, otherwise as above)'),
  new Option('--url <url>', 'use an API over HTTP instead (default: PALIMPSEST_URL)'),
  new Option('--token <token>', 'its bearer token (default: PALIMPSEST_TOKEN, which `ps` does not show)'),
  new Option('--no-color', 'disable colours; NO_COLOR does the same'),
];

const closing = `
Examples:
  # servers, a worker, the API and a sample session, all on this machine
  palimpsest dev
  # the size, history and policy of a session
  palimpsest status ticket-4711
  # check servers, schema, queues and model
  palimpsest doctor

Exit codes: 0 done, 1 something failed, 2 wrong usage or input,
            3 nothing to do (with --exit-code only), 130 interrupted
\`palimpsest COMMAND --help\` explains a command.
`;

export function newProgram(): Command {
  const program = new Command('palimpsest')
    .description('Durable conversation compaction for LLM agents.')
    .usage('COMMAND [options]')
    .version(packageVersion(), '-V, --version', 'print the version')
    .exitOverride()
    .showHelpAfterError('Try --help.')
    .showSuggestionAfterError()
    .helpCommand(false)
    .configureHelp({
      showGlobalOptions: true,
      subcommandTerm: termOf,
      // Commands with subcommands list the subcommands first; the program lists its options below them (`optionLines`).
      visibleOptions: (command) =>
        command.commands.length > 0 ? [] : Help.prototype.visibleOptions.call(new Help(), command),
      visibleGlobalOptions: optionsOfAll,
      ...helpStyle(),
    });
  for (const option of globalOptions()) program.addOption(option);
  return program.addHelpText('after', ({ command }) => `${optionLines(command)}${closing}`);
}

/** Returns `status <session>`, without mentioning options. */
function termOf(command: Command): string {
  const args = command.registeredArguments.map((argument) => {
    const name = argument.name() + (argument.variadic ? '...' : '');
    return argument.required ? `<${name}>` : `[${name}]`;
  });
  return [command.name(), ...args].join(' ');
}

function optionLines(program: Command): string {
  const help = Object.assign(new Help(), program.configureHelp(), {
    helpWidth: columnsOfTerminal(process.stdout) ?? 80,
  });
  const width = Math.max(...program.options.map(({ flags }) => flags.length));
  const items = program.options.map((option) =>
    help.formatItem(help.styleOptionTerm(option.flags), width, option.description, help),
  );
  return `\n${help.styleTitle(globalHeading)}\n${items.join('\n')}\n`;
}

const globalHelp = Object.assign(new Help(), { showGlobalOptions: true });

function helpStyle() {
  const style = styleFor(wantsColour(process.stdout, !process.argv.includes('--no-color')));
  return { styleTitle: style.bold, styleCommandText: style.cyan, styleOptionTerm: style.cyan };
}

/** Returns an argument that commander requires. */
export const argument = (args: readonly string[], index: number, name: string): string =>
  args[index] ?? absent(name);
export const numberArgument = (args: readonly string[], index: number, name: string, range?: Range): number =>
  wholeNumber(argument(args, index, name), name, range);

function absent(name: string): never {
  throw new Error(`argument ${name} is missing`);
}
