import { loadSession, setPaused as store } from '../src/store/sessions/sessions.js';
import type { SessionIds } from '../src/contract/ids.js';
import type { Dependencies } from './dependencies.js';
import { runStep } from './run.js';

export interface PauseInput extends SessionIds {
  paused: boolean;
}

/** Keeps what an operator signalled to the session's workflow, which forgets when it ends. */
export function setPaused({ pool }: Dependencies) {
  return ({ paused, ...ids }: PauseInput): Promise<void> =>
    runStep(paused ? 'pause' : 'resume', async () => store(pool, await loadSession(pool, ids), paused));
}
