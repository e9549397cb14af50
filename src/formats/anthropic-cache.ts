/**
 * Cache marks (`cache_control`) that travel with the messages of a session. A request may hold four ("A maximum of 4
 * blocks with cache_control may be provided", platform.claude.com/docs/en/build-with-claude/prompt-caching); a session
 * collects one a turn. The newest are kept, and the last of the system's: a mark ends the part that is cached, and
 * is no part of it, so that older ones may go without a cost.
 */
import type { Json } from '../conversation/message.js';
import { isFields } from './content.js';
import type { Rendered } from './format.js';

const MOST_CACHE_MARKS = 4;

/** How many marks a value holds, at any depth that blocks have. */
function cacheMarks(value: Json | undefined): number {
  if (Array.isArray(value)) return value.reduce<number>((sum, inner) => sum + cacheMarks(inner), 0);
  if (!isFields(value)) return 0;
  return (value.cache_control ? 1 : 0) + cacheMarks(Array.isArray(value.content) ? value.content : undefined);
}

export function capCacheMarks(rendered: Rendered): Rendered {
  const { messages, system } = rendered;
  const ofSystem = cacheMarks(system);
  const ofMessages = cacheMarks(messages);
  if (ofSystem + ofMessages <= MOST_CACHE_MARKS) return rendered;
  const keptInSystem = Math.max(Math.min(ofSystem, 1), MOST_CACHE_MARKS - ofMessages);
  return {
    ...rendered,
    messages: newest(messages, ofMessages, MOST_CACHE_MARKS - keptInSystem) as Json[],
    ...(system === undefined ? {} : { system: newest(system, ofSystem, keptInSystem) }),
  };
}

/** The value with its last `kept` of `found` marks; what holds none that goes is the same as before. */
function newest(value: Json, found: number, kept: number): Json {
  let surplus = found - kept;
  const walk = (inner: Json): Json => {
    if (surplus <= 0 || cacheMarks(inner) === 0) return inner;
    if (Array.isArray(inner)) return inner.map(walk);
    if (!isFields(inner)) return inner;
    const content = inner.content === undefined ? undefined : walk(inner.content);
    const block = content === undefined ? inner : { ...inner, content };
    if (!block.cache_control || surplus <= 0) return block;
    surplus -= 1;
    const { cache_control: _mark, ...rest } = block;
    return rest;
  };
  return walk(value);
}
