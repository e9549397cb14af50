import type { FormatName } from '../../conversation/format-names.js';
import type { LoggedTurn } from '../../formats/native.js';
import type { TurnLimits } from '../../conversation/turn-limits.js';
import type { DeploymentPolicy } from '../../policy/layers.js';
import type { PolicyInput } from '../../policy/schema.js';
import type { UsageReport } from '../../tokens/reported-usage.js';
import type { SessionIds } from '../../contract/ids.js';

/** A place at the end of a session as this process saw it last. The turn is stored only if nothing has changed since. */
export interface SeenPlace {
  /** See `SeenSession`. */
  version: string;
  /** Digests of the list's beginnings that are longer than what it stands for: the session must know none of them. */
  longer: readonly string[];
}

/** A list of messages that a caller holds. */
export interface HeldList {
  /** Digest of all its items: see `beginningDigests`. */
  digest: string;
  items: number;
  /** The session that the caller named. It must still go on in the session of the turn. */
  origin: string;
  /** Set if the caller has not looked up what the session knows of the list. */
  after?: SeenPlace;
}

export interface TurnInput extends SessionIds {
  /** Idempotency key within the session, at most 512 bytes. */
  turnId: string;
  /** At least one message in the session's format, checked by the append. A long list may be a `MessagesText`. */
  messages?: unknown;
  /** The messages as `readNative` returns them for the log, in place of `messages`. */
  logged?: LoggedTurn;
  /** Format of `messages`. The first turn fixes it. @default the session's format, `openai-chat` for a new session */
  format?: FormatName;
  /** The last seq that the caller knows; 0 for a new session. */
  expectedSeq?: number;
  /** Policy of a new session. For an existing session it must be equal or absent. */
  policy?: PolicyInput;
  /** When the turn was said, as an ISO 8601 instant with a time zone. A message whose log gives it a time keeps that time. */
  at?: string;
  /** The provider's usage report, in its own form, for the request that made the first assistant message of this turn. */
  usage?: UsageReport;
  /**
   * When the turn was submitted, if it is stored much later. A turn older than an erasure of its session is
   * refused (`Store.StaleGeneration`) until that erasure is complete.
   */
  receivedAt?: Date;
  /** For a new session: the policy layers of file and environment. */
  deployment?: DeploymentPolicy;
  /** The turn is old: no workflow is signalled, and the session is next measured by a backfill or after a live turn. */
  imported?: boolean;
  limits?: TurnLimits;
  /** The list of which this turn is the end, stored together with it. */
  list?: HeldList;
}
