import { PalimpsestError } from '../src/errors.js';
import { acceptDigest, acceptSnapshot } from '../src/summary/accept.js';
import { digestKey } from '../src/summary/chunk.js';
import { foldRequest, PROMPT_VERSION } from '../src/summary/prompts.js';
import { loadCompaction } from '../src/store/compactions.js';
import { findDigest } from '../src/store/digests.js';
import type { SessionIds } from '../src/temporal/names.js';
import { counterFor } from '../src/tokens/counter.js';
import type { Dependencies } from './dependencies.js';
import { answerOnce, counted, countRequest, type DigestRef } from './digest.js';
import type { SummarizerSettings } from './plan.js';
import { runModelStep } from './run.js';

export interface ConsolidateInput extends SessionIds {
  baseGeneration: number;
  /** Keys of the digests to consolidate, in the order of the log. */
  digests: string[];
  /** Tokens of the originals that the digests stand for. */
  coveredTokens: number;
  /** The root of the tree: folds the previous snapshot too, its result is the new snapshot. */
  root: boolean;
  summarizer: SummarizerSettings;
}

/** Merges neighbouring digests into one; at the root, together with the previous snapshot. */
export function consolidate({ pool, model }: Dependencies) {
  return ({
    digests,
    coveredTokens,
    root,
    summarizer,
    baseGeneration,
    ...ids
  }: ConsolidateInput): Promise<DigestRef> =>
    runModelStep('consolidate', async (attempt) => {
      const counter = counterFor(summarizer.tokenizer);
      const previous = root ? await loadCompaction(pool, ids, baseGeneration) : null;
      const kind = root ? 'fold' : 'merge';
      const maxTokens = root ? summarizer.snapshotTokens : summarizer.digestTokens;
      const key = digestKey({
        tenant: ids.tenant,
        kind,
        members: [...(previous?.snapshot ? [`snapshot ${previous.snapshotSha256}`] : []), ...digests],
        promptVersion: PROMPT_VERSION,
        model: summarizer.model,
        limits: { maxTokens },
      });
      return answerOnce({ pool, model, ids, baseGeneration, key, kind, summarizer, attempt }, async () => {
        const texts = await Promise.all(digests.map((digest) => textOf(digest)));
        const inputTokens = coveredTokens + (previous?.snapshot ? counter.count(previous.snapshot) : 0);
        const request = foldRequest({ previous: previous?.snapshot ?? null, digests: texts, key, maxTokens });
        return {
          request,
          tokens: counted(() => countRequest(request, counter)),
          accept: (text) =>
            root
              ? acceptSnapshot(text, { inputTokens, maxTokens: summarizer.snapshotCeiling, counter })
              : acceptDigest(text, { inputTokens, maxTokens, counter }),
        };
      });

      async function textOf(digest: string): Promise<string> {
        const stored = await findDigest(pool, ids.tenant, digest);
        if (stored) return stored.text;
        throw new PalimpsestError('Store.Corrupt', `digest ${digest} is not stored any more`, {
          hint: 'The compaction starts again and pays for it anew.',
        });
      }
    });
}
