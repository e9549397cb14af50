import { z } from 'zod';
import { list } from './list.js';

/** How a tool result beyond `budget` is reduced; the budget is counted from the newest result. */
const retentions = ['keep_full', 'summarize_archive', 'archive', 'drop'] as const;
export type Retention = (typeof retentions)[number];

const retention = z.enum(retentions);
const share = z.number().gt(0).max(1);

/** `policy.reduce.arguments`: truncation of long call arguments in old messages. */
const argumentsSchema = z.strictObject({
  tools: list(z.string().min(1), { max: 1_000 })
    .optional()
    .describe('Tools whose arguments are truncated. Default `write_file`, `edit_file`.'),
  olderThan: z
    .int()
    .min(0)
    .optional()
    .describe('Number of newest messages in the context that keep their arguments whole. Default 20.'),
  longerThan: z
    .int()
    .min(1)
    .optional()
    .describe('Length in characters above which an argument string is truncated. Default 2,000.'),
  prefix: z
    .int()
    .min(0)
    .optional()
    .describe('Number of characters that a truncated argument keeps. Default 20.'),
  text: z
    .string()
    .max(200)
    .optional()
    .describe('Text that follows these characters. Default `...(argument truncated)`.'),
  from: share
    .optional()
    .describe(
      'Share of the window that overhead + context must reach before arguments are truncated. Default 0.7.',
    ),
});

/** `policy.reduce.toolResults`: reduction of tool results in the tail. */
const toolResultsSchema = z.strictObject({
  byTool: z
    .record(z.string(), retention)
    .optional()
    .describe(
      'Retention (explained at `contextPolicy`) of the results of single tools, by tool name. Takes precedence over `defaultPolicy`. Default none.',
    ),
  defaultPolicy: retention
    .optional()
    .describe(
      'Retention (explained at `contextPolicy`) of the results of the tools that `byTool` does not name. Takes precedence over `contextPolicy`. Default none.',
    ),
  contextPolicy: retention
    .optional()
    .describe(
      'Retention: what the context has instead of a result beyond `budget`. `keep_full`: the whole result; `summarize_archive`: an excerpt and a pointer; `archive`: a pointer only; `drop`: nothing, the whole group leaves the context. Default `summarize_archive`.',
    ),
  critical: list(z.string().min(1), { max: 1_000 })
    .optional()
    .describe(
      'Tools whose results are never reduced, in addition to `response`, `manage_todo_list` and `get_tool_response`. Default none.',
    ),
  budget: z
    .int()
    .min(0)
    .optional()
    .describe(
      'Maximum tokens of the tool results that stay whole, counted from the newest. Default half the target.',
    ),
});

/**
 * `policy.reduce`: reductions of the context. Reductions are made before the summarizer is asked, and many at once, when a
 * commit changes the beginning of the context anyway.
 */
export const reduceSchema = z.strictObject({
  arguments: z
    .union([z.literal(false), argumentsSchema])
    .optional()
    .describe('Truncation of long call arguments; `false` turns it off. Default on.'),
  toolResults: toolResultsSchema.optional(),
  messages: z
    .union([z.literal(false), share])
    .optional()
    .describe(
      'Share of the threshold above which a message in the tail is summarized separately; its beginning and end stay. `false` turns this off. Default 0.5.',
    ),
  newestUserMessage: z
    .boolean()
    .optional()
    .describe(
      'Whether the newest user message may be shortened to an excerpt (its beginning, its end and a pointer to the original) if it leaves too little room for the rest. Meant for agents whose tools answer in user messages. Default false.',
    ),
});

/** `policy.reduce` with every default filled in. */
export interface Reduce {
  arguments: {
    tools: string[];
    olderThan: number;
    longerThan: number;
    prefix: number;
    text: string;
    from: number;
  } | null;
  toolResults: {
    byTool: Record<string, Retention>;
    /** `defaultPolicy`, else `contextPolicy`. */
    retention: Retention;
    critical: string[];
    /** null: half the target. */
    budget: number | null;
  };
  /** null: never. */
  messages: number | null;
  newestUserMessage: boolean;
}

const alwaysCritical = ['response', 'manage_todo_list', 'get_tool_response'];

export function resolveReduce(input: z.infer<typeof reduceSchema> = {}): Reduce {
  const { arguments: given = {}, toolResults = {}, messages = 0.5, newestUserMessage = false } = input;
  return {
    arguments:
      given === false
        ? null
        : {
            tools: given.tools ?? ['write_file', 'edit_file'],
            olderThan: given.olderThan ?? 20,
            longerThan: given.longerThan ?? 2_000,
            prefix: given.prefix ?? 20,
            text: given.text ?? '...(argument truncated)',
            from: given.from ?? 0.7,
          },
    toolResults: {
      byTool: toolResults.byTool ?? {},
      retention: toolResults.defaultPolicy ?? toolResults.contextPolicy ?? 'summarize_archive',
      critical: [...new Set([...alwaysCritical, ...(toolResults.critical ?? [])])],
      budget: toolResults.budget ?? null,
    },
    messages: messages === false ? null : messages,
    newestUserMessage,
  };
}

/** The retention of a tool's results. `toolName` is null if the tool is unknown. */
export function retentionOf(reduce: Reduce, toolName: string | null): Retention {
  const { byTool, retention: general, critical } = reduce.toolResults;
  if (toolName === null) return general;
  if (critical.includes(toolName)) return 'keep_full';
  return Object.hasOwn(byTool, toolName) ? byTool[toolName]! : general;
}
