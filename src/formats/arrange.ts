/** A view as a request in another format takes it: media where the format allows them. */
import type { ContextFormat } from '../conversation/format-names.js';
import { isMedia } from '../conversation/media.js';
import type { LoggedMessage } from '../conversation/message.js';
import { moveMedia } from '../context/view/moved-media.js';
import type { ViewItem } from '../context/view/view-types.js';
import type { TokenCounter } from '../tokens/token-counter.js';
import { contextFormatOf } from './index.js';
import { wholeUnits } from './native.js';

/**
 * A view for a request in another format: units that are shown as they came in stay whole, the media of all else are where
 * the format takes them. `shownUnits` makes the units of it.
 */
export function arrangeNative(
  view: readonly ViewItem[],
  logged: ReadonlyMap<number, LoggedMessage>,
  format: ContextFormat,
  counter: TokenCounter,
): ViewItem[] {
  const { refusesMedia: refuses } = contextFormatOf(format);
  const hasMedia = ({ message: { content } }: ViewItem) => Array.isArray(content) && content.some(isMedia);
  if (!view.some(hasMedia)) return [...view];
  const kept = new Set<ViewItem>();
  const joined = new Set<number>();
  for (const [from, { messages }] of wholeUnits(view, logged, format)) {
    for (const item of view.slice(from, from + messages.length)) kept.add(item);
    for (let index = from; index < from + messages.length - 1; index++) joined.add(index);
  }
  return moveMedia(view, {
    ...{ refuses, counter },
    isKept: (item) => kept.has(item),
    isJoined: (index) => joined.has(index),
  });
}
