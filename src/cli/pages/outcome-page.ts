import type { Erased } from '../../contract/sessions.js';
import type { CompactionOutcome } from '../../contract/compactions.js';
import { count, money, percent, plural, seconds } from '../terminal/numbers.js';
import type { Output } from '../terminal/output.js';

/** Prints one committed compaction on a few lines. */
export async function showOutcome(out: Output, session: string, done: CompactionOutcome): Promise<void> {
  const { tokensBefore, tokensAfter, cachedTokens, archivePart, modelCalls, cost, currency, paysBackAfter } =
    done;
  const saved = tokensBefore - tokensAfter;
  const part =
    archivePart === null
      ? 'reductions only, nothing evicted'
      : `${plural(done.evicted, 'message')} into archive part ${archivePart}`;
  await out.facts([
    ['session', session],
    ['generation', `${done.generation} (${done.reason}, ${done.method})`],
    done.chunksByRule === 0
      ? null
      : [
          'fallback',
          `the model failed at ${plural(done.chunksByRule, 'text')}; the rules wrote ${done.chunksByRule === 1 ? 'it' : 'them'}`,
        ],
    [
      'context',
      `${count(tokensBefore)} → ${count(tokensAfter)} tokens${saved > 0 ? `, ${percent(saved, tokensBefore)} less` : ''}`,
      out.style.green,
    ],
    cachedTokens === null
      ? null
      : [
          'unchanged',
          `the first ${count(cachedTokens)} tokens (${percent(cachedTokens, tokensAfter)}), which a prompt cache still serves`,
        ],
    ['evicted', part],
    modelCalls === 0
      ? null
      : [
          'model',
          `${plural(modelCalls, 'call')}, ${count(done.modelInputTokens)} tokens in, ${count(done.modelOutputTokens)} out`,
        ],
    [
      'time',
      `${seconds(done.modelMs)} waiting for the model, ${seconds(done.overheadMs)} for everything else`,
    ],
    cost === null ? null : ['cost', money(cost, currency)],
    paysBackAfter === null ? null : ['pays back', `after ${plural(paysBackAfter, 'read')} of the context`],
    done.workflowId === '' ? null : ['run', `${done.workflowId} ${done.runId}`],
  ]);
}

/** Describes the outcome of an erasure in one or two sentences. */
export function erasedText(session: string, erased: Erased): string {
  const { messages, generations, digests, forks, executions, remaining } = erased;
  const deleted = [
    plural(messages, 'message'),
    plural(generations, 'generation'),
    plural(digests, 'digest'),
    plural(executions, 'execution'),
  ].join(', ');
  const with_ = forks === 0 ? '' : ` with ${plural(forks, 'fork')}`;
  return `${session} is erased${with_}: ${deleted}.${leftOf(remaining)}`;
}

function leftOf(remaining: number | null): string {
  if (remaining === 0) return '';
  const what =
    remaining === null
      ? 'Temporal did not answer: the executions of the session'
      : `${plural(remaining, 'more execution')}`;
  return ` ${what} will be deleted by the next sweep, or when you repeat the command.`;
}
