import type { Command } from 'commander';
import { invalid } from '../../errors.js';
import { argument, type CommandGroup } from '../command/command.js';

/** When a command runs, `program` holds all commands. */
export function addCompletionCommands(group: CommandGroup, program: Command): void {
  group.add(
    {
      name: 'completion',
      arguments: '<shell>',
      summary: 'print shell completion for bash, zsh or fish',
      description:
        'Prints a completion script for bash, zsh or fish. It completes commands, options, and ids of sessions if ' +
        'the database answers within 200 ms.',
      examples: [
        ['source <(palimpsest completion bash)', 'in ~/.bashrc; for zsh in ~/.zshrc, after compinit'],
        ['palimpsest completion fish > ~/.config/fish/completions/palimpsest.fish', 'for fish'],
      ],
    },
    async (run, args) => {
      const { completionScript, shells } = await import('../completion/completion.js');
      const shell = shells.find((one) => one === args[0]);
      if (shell === undefined)
        throw invalid(
          `Completion is not available for ${JSON.stringify(args[0])}.`,
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
