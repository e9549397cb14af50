import type { ChatMessage, LoggedMessage, MessageMeta } from '../../conversation/message.js';
import { readInstant } from '../../conversation/instant.js';
import { timeOf } from '../../formats/openai-chat.js';
import { checkMessages, metaOf, serializeMessage } from '../../conversation/validate.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { countMessage } from '../../tokens/message.js';

/**
 * A log in memory, numbered from 1, with what the store keeps beside each message. Holds copies: whoever goes on writing
 * into a message that was appended does not rewrite the log.
 */
export class MemoryLog {
  readonly messages: LoggedMessage[] = [];
  readonly metas: MessageMeta[] = [];
  /** Last of the leading system messages. */
  systemThrough = 0;
  private readonly hashes: string[] = [];

  constructor(private readonly counter: TokenCounter) {}

  /**
   * Tokens of what was added. Throws `Input.Invalid`; then nothing was. `at`: Unix milliseconds; `said`: ISO 8601, of the
   * messages that bear no time of their own.
   */
  append(messages: readonly ChatMessage[], at: number, said?: string): number {
    const told = said === undefined ? undefined : readInstant(said, 'said');
    let added = 0;
    for (const message of structuredClone(checkMessages([...messages]))) {
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
