import { createHash } from 'node:crypto';
import type { ChatMessage } from '../conversation/message.js';
import { metaOf, serializeMessage } from '../conversation/validate.js';
import type { TokenizerName } from '../tokens/counter.js';

/** A turn as its columns: one array for each, in message order. */
export interface SerializedTurn {
  roles: string[];
  calls: (string | null)[];
  answers: (string | null)[];
  empties: boolean[];
  bodies: string[];
  /** Hex, of each body. */
  hashes: string[];
  /** Of the turn: over the JSON array of the bodies. */
  sha256: string;
}

export interface PreparedTurn extends SerializedTurn {
  tokens: number[];
  /** With which they were counted. */
  tokenizer: TokenizerName;
}

export function serialize(messages: readonly ChatMessage[]): SerializedTurn {
  const stored = messages.map((message) => ({ ...metaOf(message), ...serializeMessage(message) }));
  const bodies = stored.map(({ body }) => body);
  return {
    roles: stored.map(({ role }) => role),
    calls: stored.map(({ calls }) => (calls.length === 0 ? null : JSON.stringify(calls))),
    answers: stored.map(({ answers }) => (answers === null ? null : JSON.stringify(answers))),
    empties: stored.map(({ empty }) => empty),
    bodies,
    hashes: stored.map(({ sha256 }) => sha256),
    sha256: createHash('sha256')
      .update(`[${bodies.join(',')}]`)
      .digest('hex'),
  };
}
