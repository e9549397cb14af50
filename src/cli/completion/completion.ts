/** Generates completion scripts from the declared commands. */
import type { Command, Option } from 'commander';

export const shells = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof shells)[number];

/** A command path on the command line, such as `backfill start`. */
interface Place {
  path: string;
  summary: string;
  commands: { name: string; summary: string }[];
  options: { flag: string; summary: string; takesValue: boolean; takesFile: boolean }[];
  /** The kind of the command's first argument. */
  argument: 'session' | 'file' | 'shell' | 'other' | 'none';
}

export function completionScript(shell: Shell, program: Command): string {
  const places = placesOf(program, '', program.options);
  if (shell === 'fish') return fishScript(places);
  return shell === 'bash' ? bashScript(places) : zshScript(places);
}

function placesOf(command: Command, path: string, shared: readonly Option[]): Place[] {
  const commands = command.createHelp().visibleCommands(command);
  const own = command.parent === null ? [] : command.options;
  const place: Place = {
    path,
    summary: command.summary(),
    commands: commands.map((sub) => ({ name: sub.name(), summary: sub.summary() })),
    options: [...own, ...shared]
      .map((option) => ({
        flag: option.long ?? option.flags,
        summary: option.description,
        takesValue: option.required || option.optional,
        takesFile: /file|folder/.test(option.flags),
      }))
      .concat([{ flag: '--help', summary: 'explain this command', takesValue: false, takesFile: false }]),
    argument: argumentOf(command),
  };
  // commander adds `help` itself.
  const below = commands.filter((sub) => sub.name() !== 'help');
  return [place, ...below.flatMap((sub) => placesOf(sub, `${path} ${sub.name()}`.trim(), shared))];
}

function argumentOf({ registeredArguments: [first] }: Command): Place['argument'] {
  const name = first?.name();
  if (name === undefined) return 'none';
  if (name === 'session' || name === 'shell') return name;
  return /file|source|path/.test(name) ? 'file' : 'other';
}

const flagsOf = (places: readonly Place[], wanted: (option: Place['options'][number]) => boolean): string =>
  [...new Set(places.flatMap(({ options }) => options.filter(wanted).map(({ flag }) => flag)))].join('|');

const servers = '--tenant|--database-url|--url|--token';

/**
 * For bash and zsh. The words before the current word determine the command (`path`), its number of arguments, and the servers
 * that are asked for ids. Words are split at blanks, because bash would also split ids at colons.
 */
function walk(places: readonly Place[], words: string): string {
  const known = places.filter(({ path }) => path !== '').map(({ path }) => `"${path}"`);
  return `  local place="" given=0 skip=0 word
  local -a asked=()
  for word in ${words}; do
    if (( skip == 1 )); then skip=0; continue; fi
    if (( skip == 2 )); then asked+=("$word"); skip=0; continue; fi
    case "$word" in
      ${servers}) asked+=("$word"); skip=2 ;;
      ${flagsOf(places, ({ takesValue }) => takesValue)}) skip=1 ;;
      -*) ;;
      *)
        case "\${place:+$place }$word" in
          ${known.join('|')}) place="\${place:+$place }$word" ;;
          *) given=$((given + 1)) ;;
        esac ;;
    esac
  done`;
}

function cases(places: readonly Place[]): string {
  return places
    .map(({ path, commands, options, argument }) => {
      const flags = options.map(({ flag }) => flag).join(' ');
      const names = commands.map(({ name }) => name).join(' ');
      const words = argument === 'shell' ? shells.join(' ') : names;
      return `    "${path}") flags="${flags}"; names="${words}"; kind="${argument}" ;;`;
    })
    .join('\n');
}

function bashScript(places: readonly Place[]): string {
  return `# bash completion for palimpsest: source <(palimpsest completion bash)
_palimpsest() {
  COMPREPLY=()
  local line="\${COMP_LINE:0:COMP_POINT}" present="" previous="" candidate
  local -a words=()
  read -ra words <<< "$line"
  if [[ "$line" != *[[:space:]] ]]; then
    present="\${words[\${#words[@]}-1]}"
    unset "words[\${#words[@]}-1]"
  fi
  (( \${#words[@]} > 0 )) && previous="\${words[\${#words[@]}-1]}"
${walk(places, '"${words[@]:1}"')}
  local flags="" names="" kind=""
  case "$place" in
${cases(places)}
  esac
  case "$previous" in
    ${flagsOf(places, ({ takesFile }) => takesFile)}) COMPREPLY=($(compgen -f -- "$present")); return ;;
    ${flagsOf(places, ({ takesValue, takesFile }) => takesValue && !takesFile)}) return ;;
  esac
  # Readline replaces only the text after the last colon.
  local before="\${present%"\${present##*:}"}"
  if [[ "$present" == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$present"))
  elif [[ -n "$names" ]] && (( given == 0 )); then
    COMPREPLY=($(compgen -W "$names" -- "$present"))
  elif [[ "$kind" == session ]] && (( given == 0 )); then
    while IFS= read -r candidate; do
      COMPREPLY+=("\${candidate#"$before"}")
    done < <("\${words[0]}" complete-sessions "\${asked[@]}" -- "$present" 2>/dev/null)
  elif [[ "$kind" == file ]]; then
    COMPREPLY=($(compgen -f -- "$present"))
  fi
}
complete -F _palimpsest palimpsest
`;
}

function zshScript(places: readonly Place[]): string {
  return `#compdef palimpsest
# zsh completion for palimpsest: source <(palimpsest completion zsh)
_palimpsest() {
  local present="\${words[CURRENT]}" previous="\${words[CURRENT-1]}"
${walk(places, '"${(@)words[2,CURRENT-1]}"')}
  local flags="" names="" kind=""
  case "$place" in
${cases(places)}
  esac
  case "$previous" in
    ${flagsOf(places, ({ takesFile }) => takesFile)}) _files; return ;;
    ${flagsOf(places, ({ takesValue, takesFile }) => takesValue && !takesFile)}) return ;;
  esac
  if [[ "$present" == -* ]]; then
    compadd -- \${=flags}
  elif [[ -n "$names" ]] && (( given == 0 )); then
    compadd -- \${=names}
  elif [[ "$kind" == session ]] && (( given == 0 )); then
    compadd -- \${(f)"$("\${words[1]}" complete-sessions "\${asked[@]}" -- "$present" 2>/dev/null)"}
  elif [[ "$kind" == file ]]; then
    _files
  fi
}
compdef _palimpsest palimpsest
`;
}

const quoted = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;

/** fish splits the line itself; a helper function checks whether the line has this command and no argument yet. */
function fishScript(places: readonly Place[]): string {
  const lines = [
    '# fish completion for palimpsest: palimpsest completion fish > ~/.config/fish/completions/palimpsest.fish',
    'function __palimpsest_at',
    '  set -l words (commandline -opc)',
    '  set -e words[1]',
    "  set -l plain (string match -v -- '-*' $words)",
    '  test "$plain[1..(math (count $argv))]" = "$argv"',
    'end',
    'complete -c palimpsest -f',
  ];
  for (const { path, commands, options, argument } of places) {
    const at = path === '' ? '' : `-n '__palimpsest_at ${path}'`;
    const here = path === '' ? `-n '__fish_use_subcommand'` : at;
    for (const { name, summary } of commands)
      lines.push(`complete -c palimpsest ${here} -a ${name} -d ${quoted(summary)}`);
    for (const { flag, summary, takesValue, takesFile } of options)
      lines.push(
        `complete -c palimpsest ${at} -l ${flag.replace(/^--/, '')}${takesFile ? ' -rF' : takesValue ? ' -x' : ''} -d ${quoted(summary)}`.replaceAll(
          '  ',
          ' ',
        ),
      );
    if (argument === 'session')
      lines.push(
        `complete -c palimpsest ${at} -a '(palimpsest complete-sessions -- (commandline -ct) 2>/dev/null)'`,
      );
    if (argument === 'shell') lines.push(`complete -c palimpsest ${at} -a '${shells.join(' ')}'`);
    if (argument === 'file') lines.push(`complete -c palimpsest ${at} -F`);
  }
  return `${lines.join('\n')}\n`;
}
