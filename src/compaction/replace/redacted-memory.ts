import type { Steps } from '../../steps.js';
import { redacting, type Redact } from '../../summary/redaction/redact.js';
import type { KeptLayer } from '../../summary/ask/layers.js';
import type { LayerText, ReplacementInput, Written } from './input.js';

/**
 * The input with the standing memory redacted by the present rules: entries, exact values, state, snapshot and pins that
 * patterns found. Memory that an earlier version wrote may hold secrets that only this version knows; without them, nothing
 * changes. `parent.state` stays, since its hash names the state of the model's changes; see {@link ReplacementInput}.
 */
export function* withRedactedMemory(input: ReplacementInput): Steps<ReplacementInput> {
  const { policy, redact, counter, parent, written, standing } = input;
  if (policy.redact === null) return input;
  return {
    ...input,
    parent: {
      ...parent,
      snapshot: parent.snapshot === null ? null : yield* redacting(redact, parent.snapshot),
      ledger: parent.ledger === null ? null : yield* redacting(redact, parent.ledger),
      layers: parent.layers === null ? null : yield* keptLayers(parent.layers),
      pinned: yield* texts(parent.pinned),
    },
    written: written === null ? null : yield* writtenTexts(written),
    standing: standing === null ? null : yield* layerTexts(standing),
  };

  function* texts(all: readonly string[]): Steps<string[]> {
    const shown: string[] = [];
    for (const text of all) shown.push(yield* redacting(redact, text));
    return shown;
  }

  function* keptLayers(layers: readonly KeptLayer[]): Steps<KeptLayer[]> {
    const shown: KeptLayer[] = [];
    for (const layer of layers) {
      const { added, waiting } = layer;
      const now = added === undefined ? undefined : yield* redacting(redact, added);
      shown.push({
        ...layer,
        ...(now === undefined || now === added ? {} : { added: now, addedTokens: counter.count(now) }),
        ...(waiting === undefined ? {} : { waiting: yield* redacting(redact, waiting) }),
      });
    }
    return shown;
  }

  function* layerTexts(layers: readonly LayerText[]): Steps<LayerText[]> {
    const shown: LayerText[] = [];
    for (const { layer, text } of layers) shown.push({ layer, text: yield* redacting(redact, text) });
    return shown;
  }

  function* writtenTexts({ snapshot, layers, ...rest }: Written): Steps<Written> {
    return {
      ...rest,
      snapshot: snapshot === null ? null : yield* redacting(redact, snapshot),
      layers: yield* layerTexts(layers),
    };
  }
}

/** The state as memory may keep it. */
export const redactedState = (
  state: string | null,
  { policy, redact }: { policy: ReplacementInput['policy']; redact: Redact },
): string => (policy.redact === null ? (state ?? '') : redact(state ?? ''));
