import { indexTexts as index } from '../src/store/search/index-texts.js';
import type { SessionIds } from '../src/contract/ids.js';
import type { Dependencies } from './dependencies.js';
import { runStep } from './run.js';

/** Makes what was said findable, so that the first search of a long session need not. A search does what is missing. */
export function indexTexts({ pool }: Dependencies) {
  return (ids: SessionIds): Promise<void> =>
    runStep('index texts', async () => {
      await index(pool, ids);
    });
}
