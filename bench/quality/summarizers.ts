/**
 * Summarizers that need no model, so that what is measured is the way in which compactions are strung together. The lossy
 * oracle rewrites what it is given and keeps each identifier with a fixed probability, drawn from identifier and request:
 * the same request always gives the same answer, and another rewriting draws anew.
 */
import { createHash } from 'node:crypto';
import type { Summarizer } from '../../src/compaction/in-memory/asker.js';
import type { TokenCounter } from '../../src/tokens/counter.js';
import { identifiersOf } from './grammar.js';

/** Keeps each identifier with probability `q`; where the answer has no room for all, those mentioned least go. */
export function lossyOracle(q: number, counter: TokenCounter): Summarizer {
  return ({ messages }, { kind, maxTokens }) => {
    const material = withoutFrame(messages.at(-1)?.content ?? '');
    const call = createHash('sha256').update(material).digest('hex');
    const kept = [...identifiersOf(material).keys()]
      .filter((name) => survives(name, call, q))
      .map((name) => ({ name, mentions: Math.min(20, material.split(name).length - 1) }))
      .sort((a, b) => b.mentions - a.mentions || (a.name < b.name ? -1 : 1))
      .map(({ name }) => name);
    // A digest must be smaller than what it stands for; a snapshot stands for more than the request holds.
    const most = kind === 'chunk' ? Math.min(maxTokens, Math.floor(counter.count(material) / 2)) : maxTokens;
    const room = Math.floor(0.95 * most) - 40;
    return `## Session intent\n- The work goes on as the user asked.\n## Facts from tools\n- ${fitting(kept, room, counter)}`;
  };
}

/** As many names from the first as `room` holds. */
function fitting(names: readonly string[], room: number, counter: TokenCounter): string {
  let tokens = 0;
  const shown: string[] = [];
  for (const name of names) {
    tokens += counter.count(` ${name}`);
    if (tokens > room) break;
    shown.push(name);
  }
  return shown.join(' ') || 'Nothing else was named.';
}

/** The delimiters and labels around the data, whose nonces and numbers nobody said. */
function withoutFrame(content: string): string {
  return content
    .replace(/<\/?(?:transcript|digest|previous_snapshot|state_snapshot|dropped)\b[^>\n]{0,80}>/g, ' ')
    .replace(
      /<message seq="[^\n>]{0,400}>|<\/message>|<call name="[^">]{0,100}"(?: id="[^">]{0,60}")?>|<\/call>/g,
      ' ',
    );
}

function survives(name: string, call: string, q: number): boolean {
  const drawn = createHash('sha256').update(`${call} ${name}`).digest().readUInt32BE(0) / 2 ** 32;
  return drawn < q;
}
