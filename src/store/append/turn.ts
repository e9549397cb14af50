import type { FormatName } from '../../conversation/format-names.js';
import type { LoggedTurn } from '../../formats/native.js';
import type { TurnLimits } from '../../conversation/turn-limits.js';
import type { DeploymentPolicy } from '../../policy/layers.js';
import type { PolicyInput } from '../../policy/schema.js';
import type { UsageReport } from '../../tokens/reported-usage.js';
import type { SessionIds } from '../../contract/ids.js';

export interface TurnInput extends SessionIds {
  /** Idempotency key within the session, at most 512 bytes. */
  turnId: string;
  /** At least one, in the session's format; checked here. Long ones may come as `MessagesText`. */
  messages?: unknown;
  /** Instead of `messages`: what they are logged as, from `readNative`. */
  logged?: LoggedTurn;
  /** Format of `messages`: fixed by the first turn. @default the session's own, `openai-chat` for a new one */
  format?: FormatName;
  /** The last seq the caller knows; 0 for a new session. */
  expectedSeq?: number;
  /** Policy of a new session. For one that exists it must say the same, or be left out. */
  policy?: PolicyInput;
  /** When it was said, as an ISO 8601 instant with its zone. A message whose log bears a time of its own keeps that one. */
  at?: string;
  /** What the provider reported for the request that made the first assistant message of this turn, in its own form. */
  usage?: UsageReport;
  /**
   * When it was handed in, where it comes long after that: a turn that is older than an erasure of its session is refused
   * (`Store.StaleGeneration`) as long as that is not finished.
   */
  receivedAt?: Date;
  /** Policy of file and environment for a new session. */
  deployment?: DeploymentPolicy;
  /** An old turn, which nobody is to look at before a backfill or the next live turn does. */
  imported?: boolean;
  limits?: TurnLimits;
}
