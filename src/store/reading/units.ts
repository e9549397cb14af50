/** The log in the items of its own format, unit by unit. */
import type { FormatName } from '../../conversation/format-names.js';
import type { Json } from '../../conversation/message.js';
import { withoutEnvelope } from '../../formats/envelope.js';
import type { SessionIds } from '../../contract/ids.js';
import type { Query } from '../connection/transaction.js';
import { messagePages, toLogged } from '../log/messages.js';

/** Items as they were appended, and the last message of the log that they stand for. */
export interface LogUnit {
  items: Json[];
  throughSeq: number;
}

/** The units that begin in a range of the log, oldest first. */
export async function* logUnits(
  query: Query,
  session: SessionIds & { format: FormatName },
  fromSeq: number,
  throughSeq: number,
): AsyncGenerator<LogUnit> {
  // In other formats each unit begins with a message that has items.
  let inside = session.format !== 'openai-chat';
  let rest = 0;
  for await (const page of messagePages(query, session, fromSeq, throughSeq)) {
    for (const stored of page) {
      const { seq, message, native } = toLogged(stored);
      if (native) {
        yield { items: withoutEnvelope(native.items), throughSeq: seq + native.messages - 1 };
        rest = native.messages - 1;
        inside = false;
      } else if (rest > 0) rest--;
      else if (!inside) yield { items: [message as unknown as Json], throughSeq: seq };
    }
  }
}
