/** For tests of formats: builds the context of logged items without any compaction. */
import { arrangeChat } from '../../src/context/view/moved-media.js';
import { arrangeNative, readNative, shownUnits, splitNative } from '../../src/formats/native.js';
import { buildView } from '../../src/context/view/view.js';
import { contextFormatOf } from '../../src/formats/index.js';
import type { Rendered } from '../../src/formats/format.js';
import type { ContextFormat, FormatName } from '../../src/conversation/format-names.js';
import type { ChatMessage, Json, LoggedMessage } from '../../src/conversation/message.js';
import { counterFor } from '../../src/tokens/counter.js';
import { countMessage } from '../../src/tokens/message.js';
import { sourceOf } from './histories.js';

const counter = counterFor('chars/4');

/** Returns the log of turns in a format. */
export function logged(turns: readonly (readonly Json[])[], format: FormatName): LoggedMessage[] {
  return turns
    .flatMap((items) => readNative(items, format).messages)
    .map((stored, index) => {
      const { message, native } = splitNative(stored);
      return {
        seq: index + 1,
        message,
        tokens: countMessage(message, counter),
        ...(native ? { native } : {}),
      };
    });
}

/** Renders the whole log in a format for its provider. */
export function shown(log: LoggedMessage[], format: ContextFormat): Rendered {
  const view = buildView(sourceOf(log), counter);
  if (format === 'openai-chat')
    return { messages: arrangeChat(view, counter).map(({ message }) => message as unknown as Json) };
  const bySeq = new Map(log.map((message) => [message.seq, message]));
  const arranged = arrangeNative(view, bySeq, format, counter);
  return contextFormatOf(format).render(shownUnits(arranged, bySeq, format));
}

export function shownChat(messages: readonly ChatMessage[], format: ContextFormat): Rendered {
  return shown(logged([messages as unknown as Json[]], 'openai-chat'), format);
}

/** Returns the original items of a log. */
export function itemsOf(log: readonly LoggedMessage[]): Json[] {
  return log.flatMap(({ native }) => native?.items ?? []);
}
