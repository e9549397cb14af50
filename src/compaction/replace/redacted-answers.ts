import { redacting, type Redact } from '../../summary/redaction/redact.js';
import type { Steps } from '../../steps.js';
import type { LayerText, ReplacementInput, Written } from './input.js';

/**
 * The input with the stored answers of models redacted by the present rules: an answer that an earlier version stored may hold a
 * secret that only this version knows. Memory is redacted already: it is read only under the present redaction.
 */
export function* withRedactedAnswers(input: ReplacementInput): Steps<ReplacementInput> {
  const { policy, redact, written, standing } = input;
  if (policy.redact === null) return input;
  return {
    ...input,
    written: written === null ? null : yield* redactedAnswers(written, redact),
    standing: standing === null ? null : yield* layerTexts(standing, redact),
  };
}

function* redactedAnswers(
  { snapshot, layers, changes, messages, chunks }: Written,
  redact: Redact,
): Steps<Written> {
  const summaries: Written['messages'] = [];
  for (const { seq, text } of messages) summaries.push({ seq, text: yield* redacting(redact, text) });
  return {
    snapshot: snapshot === null ? null : yield* redacting(redact, snapshot),
    layers: yield* layerTexts(layers, redact),
    changes: changes === null ? null : yield* redacting(redact, changes),
    messages: summaries,
    chunks,
  };
}

function* layerTexts(layers: readonly LayerText[], redact: Redact): Steps<LayerText[]> {
  const shown: LayerText[] = [];
  for (const { layer, text } of layers) shown.push({ layer, text: yield* redacting(redact, text) });
  return shown;
}
