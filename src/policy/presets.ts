import type { PolicyInput, PresetName } from './schema.js';

/**
 * The tail stays word for word: arguments are not truncated, and no tool result is beyond `toolResults.budget`. Messages are
 * reduced only if the context would not fit or a compaction would miss its target.
 */
const verbatim = { arguments: false, toolResults: { budget: 100_000_000 } } as const;

/**
 * adk-deepagents (`SummarizationConfig`). Differences: it truncates the summarizer's input to 4,000 tokens, while this preset
 * reads the whole input in chunks of that size; the size that is compared with the trigger includes the overhead of the
 * request; in windows below about 74,000 tokens the trigger is less than 0.85 of the window, because it is at most 0.9 ·
 * (window − reserved output). Its `truncate_args` is None by default; `reduce.arguments: {}` gives its documented values.
 * `summary.method: 'extractive'` corresponds to its summary without a model, which it cuts to 15 % of the window.
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
 * Agent SDK's smart agent. Its trigger is `summaryTriggerTokens`, else `maxTokens`, else `limits.maxContextTokens`. Only the
 * first two have documented numbers, 17,000 and 24,000; the first decides. In a smaller window the trigger is a fraction of the
 * window. Differences: its `maxTokens` (24,000), which also limits the summary, is not used, because a head has at most 3,500
 * tokens; its `summaryPromptMaxTokens` (here `summary.chunkTokens`) has no default. The SDK does not document what the agent
 * keeps verbatim.
 */
const smartAgent: PolicyInput = {
  trigger: [{ tokens: 17_000 }, { fraction: 0.85 }],
  reduce: { toolResults: { contextPolicy: 'summarize_archive' } },
  summary: { mode: 'incremental' },
};

/**
 * LangChain's SummarizationMiddleware as DeerFlow configures it (where it is off by default). Differences: it keeps 20 messages
 * of any size. They seldom take less than the 4,000 tokens of the trigger, so that the middleware would summarize again before
 * every call. This preset limits the tail to 20 messages and 2,000 tokens (the lower end of what its guide recommends), so that
 * head and tail stay below the threshold. The middleware trims the summarizer's input to 4,000 tokens; this preset reads the
 * whole input in chunks of that size. The middleware counts messages alone: if you give an `overhead`, raise the trigger by it.
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
 * DeepAgents for Swift (`SummarizationConfig`). Its documented limitations do not apply here: a single large message, and a run
 * with one user turn, are compacted too, and images are counted. Difference: in windows below about 74,000 tokens the trigger
 * is less than 0.85 of the window, so that the answer fits.
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
 * zrb. It triggers above `summary_window` (100) messages or 60 % of the window. It summarizes a message separately if it is
 * larger than half that threshold. Differences: it keeps up to 100 messages, so that the next turns trigger again; this preset
 * keeps at most 70 messages and a quarter of the window. By zrb's rule the kept part must be under 70 % of the threshold, which
 * is also the target here. At its depth limit zrb truncates; here the extractive summary, which reads everything, takes over.
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
 * The documented defaults of other systems, for users who migrate from them. Settings that a system does not document keep this
 * product's defaults. This product's guarantees hold: nothing is trimmed unread, the context always fits, and a summary that saves
 * nothing is refused. A preset names no summarizer model (such as `gemini-2.5-flash`): give `summary.model`.
 */
export const presets: Readonly<Record<PresetName, PolicyInput>> = {
  adk,
  'smart-agent': smartAgent,
  hybrid: smartAgent,
  langchain,
  deepagents,
  zrb,
};
