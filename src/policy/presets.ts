import type { PolicyInput, PresetName } from './schema.js';

/**
 * Tails stay word for word: arguments are not truncated, and no result leaves the newest-first budget. Only what must still be
 * shortened, where the context would not fit or a compaction would not reach its target, is.
 */
const verbatim = { arguments: false, toolResults: { budget: 100_000_000 } } as const;

/**
 * adk-deepagents (`SummarizationConfig`). Differs: its input to the summarizer is cut to 4,000 tokens, here the same size is a chunk and
 * all of it is read; the count includes the request overhead; in windows below about 74,000 tokens a fraction of 0.85 is lowered
 * so that the answer fits (0.9 of window − reserved output). `truncate_args` is None by default: `reduce.arguments: {}` gives its
 * documented values. What it writes without a model, cut to 15 % of the window, is `summary.method: 'extractive'`.
 */
const adk: PolicyInput = {
  fallbackContextWindow: 200_000,
  tokenizer: 'chars/4',
  trigger: { fraction: 0.85 },
  keep: { messages: 6 },
  reduce: verbatim,
  summary: {
    mode: 'incremental',
    chunkTokens: 4_000,
    acknowledgment: false,
    fallback: 'extractive',
    sections: [
      {
        key: 'intent',
        title: 'SESSION INTENT',
        asks: 'the primary goal or request of the user, with every constraint that was stated',
      },
      {
        key: 'summary',
        title: 'SUMMARY',
        asks: 'context that matters, decisions, strategies, and the reasons for them',
      },
      {
        key: 'artifacts',
        title: 'ARTIFACTS',
        asks: 'files created, modified or accessed, with what changed in each',
      },
      { key: 'next', title: 'NEXT STEPS', asks: 'tasks that remain and what to do next' },
    ],
  },
};

/**
 * Agent SDK's smart agent. Its trigger falls from `summaryTriggerTokens` to `maxTokens` to `limits.maxContextTokens`; the only
 * numbers it documents are 17,000 and 24,000, of which the first decides. A window that does not hold them uses the end of the chain:
 * its own size, as a fraction. Differs: `maxTokens` as a ceiling of the summary (24,000) is not taken over, since a head is at most
 * 3,500 tokens; `summaryPromptMaxTokens` has no default there (`summary.chunkTokens`). What it keeps verbatim is not documented.
 */
const smartAgent: PolicyInput = {
  trigger: [{ tokens: 17_000 }, { fraction: 0.85 }],
  reduce: { toolResults: { contextPolicy: 'summarize_archive' } },
  summary: { mode: 'incremental' },
};

/**
 * LangChain's SummarizationMiddleware as DeerFlow configures it (off there unless switched on). Differs: 20 messages are seldom
 * smaller than the 4,000 tokens that trigger, and then it would summarize again before every call; here the tail is at most
 * 20 messages and 2,000 tokens (the lower end of what its guide recommends), so that head and tail stay below the trigger.
 * What it trims from the summarizer's input (4,000 tokens) is read in chunks of that size. It counts messages alone; where an
 * `overhead` is given, the trigger has to be raised by it.
 */
const langchain: PolicyInput = {
  tokenizer: 'chars',
  trigger: { tokens: 4_000 },
  target: 0.9,
  keep: { messages: 20, tokens: 2_000 },
  reduce: { ...verbatim, messages: false },
  summary: { mode: 'incremental', chunkTokens: 4_000, form: 'plain', acknowledgment: false },
};

/**
 * DeepAgents for Swift (`SummarizationConfig`). Its stated limits do not come along: a single large message and runs with one user
 * turn compact as well, and images are counted. Differs: below about 74,000 tokens the fraction is lowered so that the answer fits.
 */
const deepagents: PolicyInput = {
  fallbackContextWindow: 32_768,
  tokenizer: 'chars/4',
  trigger: { fraction: 0.85 },
  keep: { messages: 6, fraction: 0.25 },
  reduce: verbatim,
  summary: { mode: 'incremental', reservedOutputTokens: 4_096, form: 'restoration' },
};

/**
 * zrb. More messages than `summary_window` (100) or 60 % of the window trigger; a message above half of that is summarized by itself.
 * Differs: it keeps up to the 100 messages that trigger, so that the next turns trigger again; here 70 stay, by its own rule that what
 * is kept lies under 70 % (which is the target, too), and at most a quarter of the window. At its depth limit it truncates; here the
 * deterministic summary takes over, which reads everything.
 */
const zrb: PolicyInput = {
  roles: 'alternate',
  trigger: [{ fraction: 0.6 }, { messages: 101 }],
  target: 0.7,
  keep: { messages: 70, fraction: 0.25 },
  reduce: { ...verbatim, messages: 0.5 },
  summary: {
    mode: 'incremental',
    chunkTokens: 2_000,
    depthLimit: 5,
    form: 'restoration',
    acknowledgment: false,
  },
};

/**
 * The documented defaults of other systems, so that their users can move over. What a system does not document keeps this product's
 * default, and so do its guarantees: nothing is trimmed unread, the context always fits, a summary that saves nothing is refused. A
 * summarizer model that a system names (`gemini-2.5-flash`, say) is the deployment's affair: give `summary.model`.
 */
export const presets: Readonly<Record<PresetName, PolicyInput>> = {
  adk,
  'smart-agent': smartAgent,
  hybrid: smartAgent,
  langchain,
  deepagents,
  zrb,
};
