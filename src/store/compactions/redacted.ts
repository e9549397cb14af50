/** Memory that was written under another redaction than the present one. */
import { redactionOf } from '../../compaction/plan/summarizer-settings.js';
import { policyOf } from '../../policy/layers.js';
import { atOnce } from '../../steps.js';
import type { KeptLayer } from '../../summary/ask/layers.js';
import { redactedHead } from '../../summary/head.js';
import { redactorFor, type Redact } from '../../summary/redaction/redact.js';
import { counterFor, type TokenCounter } from '../../tokens/counter.js';
import { toHead } from '../log/messages.js';
import type { compactions } from '../schema/compactions.js';
import type { SessionRow } from '../sessions/session-row.js';

export type Generation = typeof compactions.$inferSelect;

type Redacted = Pick<SessionRow, 'tenant' | 'policy'>;

/** Identifies the redaction of the session's policy; '' without redaction. */
export function presentRedaction({ policy }: Redacted): string {
  return redactionOf(policyOf(policy));
}

/** Whether these texts may hold what the session's policy redacts. */
export function isStale({ redaction }: Pick<Generation, 'redaction'>, session: Redacted): boolean {
  const present = presentRedaction(session);
  return present !== '' && redaction !== present;
}

/** A text of memory as the session's policy shows it. */
export function shownText(text: string, redaction: string, session: Redacted): string {
  const redact = isStale({ redaction }, session) ? redactorOf(session) : null;
  return redact === null ? text : redact(text);
}

/** The generation with its texts redacted by the session's policy; the same object if nothing in them is. */
export function redactedGeneration(
  row: Generation,
  session: Redacted & Pick<SessionRow, 'tokenizer'>,
): Generation {
  const redact = isStale(row, session) ? redactorOf(session) : null;
  if (redact === null) return row;
  const counter = counterFor(session.tokenizer);
  const { snapshot, ledger, state, pinned, layers, headTokens, carriedSeq, layout } = row;
  const head = toHead(row.head, { tokens: headTokens, carriedSeq, layout });
  const before = { snapshot, ledger, state, pinned, layers, messages: head?.messages };
  const shownHead = head && atOnce(redactedHead(head, pinned, redact, counter));
  const texts = {
    snapshot: snapshot && redact(snapshot),
    ledger: ledger && redact(ledger),
    state: state && redact(state),
    pinned: pinned.map(redact),
    layers: layers && layers.map((layer) => redactedLayer(layer, redact, counter)),
  };
  if (JSON.stringify(before) === JSON.stringify({ ...texts, messages: shownHead?.messages })) return row;
  return {
    ...row,
    ...texts,
    snapshotTokens: counter.count(texts.snapshot ?? ''),
    stateTokens: counter.count(texts.state ?? ''),
    head: shownHead && JSON.stringify(shownHead.messages),
    headTokens: shownHead?.tokens ?? [],
    layout: shownHead?.layout ?? null,
    redaction: presentRedaction(session),
  };
}

function redactedLayer(layer: KeptLayer, redact: Redact, counter: TokenCounter): KeptLayer {
  const { added, waiting } = layer;
  const now = added && redact(added);
  return {
    ...layer,
    ...(now === undefined || now === added ? {} : { added: now, addedTokens: counter.count(now) }),
    ...(waiting === undefined ? {} : { waiting: redact(waiting) }),
  };
}

function redactorOf({ policy, tenant }: Redacted) {
  return redactorFor(policyOf(policy).redact, tenant);
}
