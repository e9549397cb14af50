import { z } from 'zod';

/** What becomes of a tool result that leaves the newest-first budget. */
const retentions = ['keep_full', 'summarize_archive', 'archive', 'drop'] as const;
export type Retention = (typeof retentions)[number];

const retention = z.enum(retentions);
const share = z.number().gt(0).max(1);

/** `policy.reduce.arguments`: long call arguments of old messages. @internal A test holds the docs to its fields. */
export const argumentsSchema = z.strictObject({
  tools: z
    .array(z.string().min(1))
    .max(1_000)
    .optional()
    .describe('Tools whose arguments are truncated. Default `write_file`, `edit_file`.'),
  olderThan: z
    .int()
    .min(0)
    .optional()
    .describe('Newest messages of the context whose arguments stay whole. Default 20.'),
  longerThan: z
    .int()
    .min(1)
    .optional()
    .describe('Characters; longer argument strings are truncated. Default 2,000.'),
  prefix: z.int().min(0).optional().describe('Characters that stay. Default 20.'),
  text: z.string().max(200).optional().describe('Put behind the prefix. Default `...(argument truncated)`.'),
  from: share
    .optional()
    .describe('Share of the window, in overhead + context, from which arguments are truncated. Default 0.7.'),
});

/** `policy.reduce.toolResults`: what stays of tool results in the tail. @internal A test holds the docs to its fields. */
export const toolResultsSchema = z.strictObject({
  byTool: z
    .record(z.string(), retention)
    .optional()
    .describe('Retention by tool name; goes before `defaultPolicy`. Default none.'),
  defaultPolicy: retention
    .optional()
    .describe('Retention of every other tool; goes before `contextPolicy`. Default none.'),
  contextPolicy: retention
    .optional()
    .describe(
      '`keep_full`, `summarize_archive` (excerpt and pointer), `archive` (pointer alone) or `drop` (the whole group leaves the context). Default `summarize_archive`.',
    ),
  critical: z
    .array(z.string().min(1))
    .max(1_000)
    .optional()
    .describe(
      'Tools whose results are never reduced, besides `response`, `manage_todo_list`, `get_tool_response`. Default none.',
    ),
  budget: z
    .int()
    .min(0)
    .optional()
    .describe('Tokens of results that stay whole, newest first. Default half of the target.'),
});

/** `policy.reduce`: what becomes shorter in the context, in batches at commit points, before a model is asked. */
export const reduceSchema = z.strictObject({
  arguments: z
    .union([z.literal(false), argumentsSchema])
    .optional()
    .describe('Truncation of call arguments, or false. Default on.'),
  toolResults: toolResultsSchema.optional(),
  messages: z
    .union([z.literal(false), share])
    .optional()
    .describe(
      'Share of the threshold; one message above it is summarized by itself, its head and tail kept. false: never. Default 0.5.',
    ),
  newestUserMessage: z
    .boolean()
    .optional()
    .describe(
      'Whether the newest user message may become an excerpt where it alone leaves too little room: its head and tail, and a pointer to the original. For agents whose tools answer in user messages. Default false.',
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
    /** null: half of the target. */
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

/** The retention of a tool's results. `toolName` null: the tool is not known. */
export function retentionOf(reduce: Reduce, toolName: string | null): Retention {
  const { byTool, retention: general, critical } = reduce.toolResults;
  if (toolName === null) return general;
  if (critical.includes(toolName)) return 'keep_full';
  return Object.hasOwn(byTool, toolName) ? byTool[toolName]! : general;
}
