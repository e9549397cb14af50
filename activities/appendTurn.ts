import type { FormatName } from '../src/conversation/format-names.js';
import { invalid } from '../src/errors.js';
import { appendTurn as storeTurn } from '../src/store/append/turns.js';
import type { SessionIds } from '../src/contract/ids.js';
import type { UsageReport } from '../src/tokens/reported-usage.js';
import type { Dependencies } from './dependencies.js';
import { runStep } from './run.js';

export interface InlineTurn extends SessionIds {
  turnId: string;
  /** As the platform put them into its signal, in the session's format; checked at the append. */
  messages: unknown;
  /** As the platform put it there. */
  at?: string;
  format?: FormatName;
  /** Unix milliseconds of its signal. Absent in runs that began under an earlier version. */
  receivedAt?: number;
  usage?: UsageReport;
}

/** Stores the messages of a `turn` signal that carried them inline (off unless the tenant is allowed to). */
export function appendTurn({ pool, inlineTurnTenants, deployment }: Dependencies) {
  return ({ receivedAt, ...turn }: InlineTurn): Promise<{ seq: number; due: boolean; incarnation: string }> =>
    runStep('append turn', async () => {
      if (!inlineTurnTenants.includes('*') && !inlineTurnTenants.includes(turn.tenant)) {
        throw invalid(
          `tenant ${JSON.stringify(turn.tenant)} may not send messages inside a signal`,
          'messages',
          'Append through the library or the API and signal a reference, or list the tenant in PALIMPSEST_INLINE_TENANTS.',
        );
      }
      const { throughSeq, due, incarnation } = await storeTurn(pool, {
        ...{ ...turn, deployment },
        ...(receivedAt === undefined ? {} : { receivedAt: new Date(receivedAt) }),
      });
      return { seq: throughSeq, due, incarnation };
    });
}
