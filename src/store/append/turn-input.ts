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
  /** At least one message in the session's format, checked by the append. A long list may be a `MessagesText`. */
  messages?: unknown;
  /** The messages as `readNative` logs them, in place of `messages`. */
  logged?: LoggedTurn;
  /** Format of `messages`. The first turn fixes it. @default the session's format, `openai-chat` for a new session */
  format?: FormatName;
  /** The last seq that the caller knows; 0 for a new session. */
  expectedSeq?: number;
  /** Policy of a new session. For an existing session it must be equal or absent. */
  policy?: PolicyInput;
  /** When it was said, as an ISO 8601 instant with a time zone. A message with a time in its log keeps that time. */
  at?: string;
  /** The provider's usage report, in its own form, for the request that made the first assistant message of this turn. */
  usage?: UsageReport;
  /**
   * When the turn was submitted, where it is stored much later. A turn older than an erasure of its session is
   * refused (`Store.StaleGeneration`) until that erasure is complete.
   */
  receivedAt?: Date;
  /** Policy of file and environment for a new session. */
  deployment?: DeploymentPolicy;
  /** An old turn. Nothing looks at it before a backfill or the next live turn does. */
  imported?: boolean;
  limits?: TurnLimits;
}
