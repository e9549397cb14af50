import type { Command } from 'commander';
import { invalid } from '../../errors.js';
import { argument, type CommandGroup } from '../command/command.js';

/** `program` holds every command by the time one runs. */
export function addCompletionCommands(group: CommandGroup, program: Command): void {
  group.add(
    {
      name: 'completion',
      arguments: '<shell>',
      summary: 'completion for bash, zsh and fish',
      description:
        'Prints a completion script for bash, zsh or fish. It completes commands, options, and ids of sessions as far as ' +
        'the database answers within 200 ms.',
      examples: [
        [
          'source <(palimpsest completion bash)',
          'in ~/.bashrc; for zsh the same in ~/.zshrc, after compinit',
        ],
        ['palimpsest completion fish > ~/.config/fish/completions/palimpsest.fish', 'for fish'],
      ],
    },
    async (run, args) => {
      const { completionScript, shells } = await import('../completion/completion.js');
      const shell = shells.find((one) => one === args[0]);
      if (shell === undefined)
        throw invalid(
          `There is no completion for ${JSON.stringify(args[0])}.`,
          'shell',
          `Shells: ${shells.join(', ')}.`,
        );
      const script = completionScript(shell, program);
      await (run.json ? run.out.value({ shell, script }) : run.out.write(script));
    },
  );
  group.addHidden('complete-sessions', '<prefix>', async (run, args) => {
    const { sessionIds } = await import('../completion/complete-sessions.js');
    const ids = await sessionIds(run, argument(args, 0, 'prefix'));
    if (run.json) return run.out.value(ids);
    for (const id of ids) await run.out.line(id);
  });
}
