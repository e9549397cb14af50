import { createHash } from 'node:crypto';
import type { Limits } from '../../limits/limits.js';
import type { Policy } from '../../policy/defaults.js';
import { FORMS_VERSION } from '../../summary/redaction/forms.js';
import type { SummarizerSettings } from './plan-types.js';

/** Used if neither policy nor environment names a model. */
const defaultModel = 'gpt-4o-mini';

/** Share of the summarizer's window that plans use; the rest absorbs differences from the provider's counts. */
const countMargin = 0.95;

/** Identifies what is redacted, including the version of the known forms; '' without redaction. */
export function redactionOf({ redact }: Pick<Policy, 'redact'>): string {
  if (redact === null) return '';
  const forms = redact.secrets ? { forms: FORMS_VERSION } : {};
  return createHash('sha256')
    .update(JSON.stringify({ ...redact, ...forms }))
    .digest('hex')
    .slice(0, 16);
}

export function settingsOf(policy: Policy, limits: Limits): SummarizerSettings {
  const { window, chunkTokens, maxTokens, reservedOutput, promptTokens } = limits.summarizer;
  return {
    model: policy.summary.model ?? policy.model ?? defaultModel,
    tokenizer: limits.tokenizer,
    window,
    chunkTokens,
    digestTokens: Math.min(maxTokens, Math.max(128, Math.floor(chunkTokens / 4))),
    snapshotTokens: maxTokens,
    snapshotCeiling: Math.max(maxTokens, limits.headMax - limits.noteTokens),
    foldTokens: Math.max(chunkTokens, Math.floor(window * countMargin) - reservedOutput - promptTokens),
    concurrency: policy.summary.concurrency,
    depthLimit: policy.summary.depthLimit,
    deadlineMs: policy.summary.deadline,
    redaction: redactionOf(policy),
  };
}
