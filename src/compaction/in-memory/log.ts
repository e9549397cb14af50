import type { ChatMessage, LoggedMessage, MessageMeta } from '../../conversation/message.js';
import { readInstant } from '../../conversation/instant.js';
import { timeOf } from '../../formats/openai-chat.js';
import { checkMessages, metaOf, serializeMessage } from '../../conversation/validate.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { countMessage } from '../../tokens/message.js';

/**
 * A log in memory, numbered from 1, with the metadata that the store keeps for each message. It keeps copies, so that later
 * changes to an appended message do not change the log.
 */
export class MemoryLog {
  readonly messages: LoggedMessage[] = [];
  readonly metas: MessageMeta[] = [];
  /** Number of the last leading system message. */
  systemThrough = 0;
  private readonly hashes: string[] = [];

  constructor(private readonly counter: TokenCounter) {}

  /**
   * Appends messages and returns their tokens. If it throws `Input.Invalid`, no message is added. `at`: Unix milliseconds; `said`:
   * ISO 8601, for messages without their own time.
   */
  append(messages: readonly ChatMessage[], at: number, said?: string): number {
    const told = said === undefined ? undefined : readInstant(said, 'said');
    let added = 0;
    for (const message of structuredClone(checkMessages(messages))) {
      const seq = this.messages.length + 1;
      const tokens = countMessage(message, this.counter);
      const meta = { seq, tokens, at, ...metaOf(message) };
      const leads = meta.role === 'system' || meta.role === 'developer';
      if (leads && this.systemThrough === seq - 1) this.systemThrough = seq;
      const time = timeOf(message) ?? told;
      this.messages.push({ seq, message, tokens, ...(time === undefined ? {} : { at: time }) });
      this.metas.push(meta);
      this.hashes.push(serializeMessage(message).sha256);
      added += tokens;
    }
    return added;
  }

  range(fromSeq: number, throughSeq: number): LoggedMessage[] {
    return this.messages.slice(fromSeq - 1, throughSeq);
  }

  members(fromSeq: number, throughSeq: number): { seq: number; sha256: string; at?: string }[] {
    return this.range(fromSeq, throughSeq).map(({ seq, at }) => ({
      ...{ seq, sha256: this.hashes[seq - 1] ?? '' },
      ...(at === undefined ? {} : { at }),
    }));
  }
}
