import { argument, type CommandGroup } from '../command/command.js';

export function addTimelineCommand(group: CommandGroup): void {
  group
    .add<{ svg?: string }>(
      {
        name: 'timeline',
        arguments: '<session>',
        summary: "the context's size over the turns",
        description:
          'Draws context tokens over the turns with budget, threshold and each compaction (before → after, reason, ' +
          'method), in the terminal or as a chart. Reads PostgreSQL only.',
        examples: [
          ['palimpsest timeline ticket-4711', 'in the terminal'],
          ['palimpsest timeline ticket-4711 --svg sizes.svg', 'as a file, readable on light and dark pages'],
        ],
      },
      async (run, args, { svg }) =>
        (await import('../pages/timeline.js')).showTimeline(run, argument(args, 0, 'session'), svg),
    )
    .option('--svg <file>', 'write a chart');
}
