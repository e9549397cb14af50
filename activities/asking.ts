import type { Asking } from '../src/compaction/summarize/answers.js';
import type { Previous } from '../src/compaction/summarize/questions.js';
import type { SummarizerSettings } from '../src/compaction/plan/plan-types.js';
import { redactionOf } from '../src/compaction/plan/summarizer-settings.js';
import { Matching } from '../src/conversation/pattern.js';
import { redactorFor, type Redact } from '../src/summary/redaction/redact.js';
import { PalimpsestError } from '../src/errors.js';
import { policyOf } from '../src/policy/layers.js';
import type { Policy } from '../src/policy/defaults.js';
import type { TenantLimits } from '../src/policy/tenant-limits.js';
import { loadCompaction } from '../src/store/compactions/generations.js';
import { digestGone, digestTexts as storedTexts } from '../src/store/compactions/digests.js';
import { loadSession } from '../src/store/sessions/sessions.js';
import { journalPrompt } from '../src/summary/ask/journal-prompts.js';
import { promptSettings } from '../src/summary/ask/prompts.js';
import type { SessionIds } from '../src/contract/ids.js';
import { counterFor } from '../src/tokens/counter.js';
import type { LoggedMessage } from '../src/conversation/message.js';
import { snapshotKey } from '../src/compaction/plan/reading.js';
import { MOST_FOLLOWING } from '../src/summary/ask/record.js';
import { readMessages } from '../src/store/log/messages.js';
import type { Dependencies } from './run.js';

/** The settings of requests, the session that pays for the answers, and the operator's limits on calls for its tenant. */
export interface AskingOfSession extends Asking {
  incarnation: string;
  limits: TenantLimits | undefined;
}

/**
 * The settings shared by every request for this session. Prompt, sections and redaction come from the session's policy and do
 * not pass through Temporal. `incarnation` identifies the session that was read; only that session pays for the answer.
 */
export async function askingFor(
  { pool }: Pick<Dependencies, 'pool'>,
  ids: SessionIds,
  summarizer: SummarizerSettings,
  signal: AbortSignal,
  form: 'snapshot' | 'journal' = 'snapshot',
): Promise<AskingOfSession> {
  const { policy: layers, incarnation } = await loadSession(pool, ids);
  const policy = policyOf(layers);
  const prompt = form === 'journal' ? journalPrompt(policy.summary) : promptSettings(policy.summary);
  if (summarizer.redaction !== redactionOf(policy)) {
    throw new PalimpsestError(
      'Store.StaleGeneration',
      'the policy redacts other things than when this was planned',
    );
  }
  return {
    tenant: ids.tenant,
    summarizer,
    prompt,
    redact: redactorOf(policy, ids.tenant, signal),
    counter: counterFor(summarizer.tokenizer),
    incarnation,
    limits: layers.limits,
  };
}

/** Throws `Input.Invalid` if the policy names a pattern that cannot be matched. */
export function redactorOf(policy: Policy, tenant: string, signal: AbortSignal): Redact {
  return redactorFor(policy.redact, tenant, new Matching({ signal })) ?? ((text) => text);
}

export async function previousOf(
  { pool }: Pick<Dependencies, 'pool'>,
  ids: SessionIds,
  generation: number | null,
): Promise<Previous | null> {
  if (generation === null) return null;
  const { snapshot, snapshotSha256 } = await loadCompaction(pool, ids, generation);
  return snapshot === null || snapshotSha256 === null ? null : { text: snapshot, sha256: snapshotSha256 };
}

/** Returns the state of a generation, or '' if it has none. */
export async function stateOf(
  { pool }: Pick<Dependencies, 'pool'>,
  ids: SessionIds,
  generation: number,
): Promise<string> {
  return (await loadCompaction(pool, ids, generation)).state ?? '';
}

/** Returns the first messages that stay in the context. */
export function followingOf(
  { pool }: Pick<Dependencies, 'pool'>,
  ids: SessionIds,
  fromSeq: number,
): Promise<LoggedMessage[]> {
  return readMessages(pool, ids, fromSeq, fromSeq + MOST_FOLLOWING - 1);
}

/**
 * Returns the texts of digests, or of the snapshots that entries took over, in the order of their keys; `known` are not read.
 * Throws `Store.DigestGone`; the compaction then requests the answer again.
 */
export async function digestTexts(
  { pool }: Pick<Dependencies, 'pool'>,
  ids: SessionIds,
  keys: readonly string[],
  known: ReadonlyMap<string, string> = new Map(),
): Promise<string[]> {
  const unknown = keys.filter((key) => !known.has(key));
  const [stored, taken] = await Promise.all([
    storedTexts(pool, ids.tenant, unknown),
    Promise.all(unknown.filter((key) => key.startsWith(snapshotKey)).map(snapshotOf)),
  ]);
  const texts = new Map([...known, ...stored, ...taken.flat()]);
  return keys.map((key) => {
    const text = texts.get(key);
    if (text === undefined) throw digestGone(`digest ${key} is`);
    return text;
  });

  async function snapshotOf(key: string): Promise<[key: string, text: string][]> {
    const { snapshot } = await loadCompaction(pool, ids, Number(key.slice(snapshotKey.length)));
    return snapshot === null ? [] : [[key, snapshot]];
  }
}
