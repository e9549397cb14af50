/**
 * Summarizers without a model, which measure the effect of consecutive compactions. The lossy oracle rewrites its input and
 * keeps each identifier with a fixed probability, drawn from identifier and request: equal requests always get equal answers,
 * and another request draws again.
 */
import { createHash } from 'node:crypto';
import type { Summarizer } from '../../src/compaction/in-memory/asker.js';
import type { TokenCounter } from '../../src/tokens/counter.js';
import { identifiersOf } from './grammar.js';

/** Keeps each identifier with probability `q`. If they do not all fit, the least mentioned ones are dropped. */
export function lossyOracle(q: number, counter: TokenCounter): Summarizer {
  return ({ messages }, { kind, maxTokens }) => {
    if (kind === 'state') return '## State\n- none';
    const notes = /about \d+ lines, (\d+) tokens/.exec(messages.at(-1)?.content ?? '');
    const material = withoutFrame(messages.at(-1)?.content ?? '');
    const call = createHash('sha256').update(material).digest('hex');
    const kept = [...identifiersOf(material).keys()]
      .filter((name) => survives(name, call, q))
      .map((name) => ({ name, mentions: Math.min(20, material.split(name).length - 1) }))
      .sort((a, b) => b.mentions - a.mentions || (a.name < b.name ? -1 : 1))
      .map(({ name }) => name);
    // A digest must be smaller than its source; a snapshot replaces more than the request has.
    const most = kind === 'chunk' ? Math.min(maxTokens, Math.floor(counter.count(material) / 2)) : maxTokens;
    if (notes) return notesOf(kept, Number(notes[1]), messages.at(-1)?.content ?? '', counter);
    const room = Math.floor(0.95 * most) - 40;
    return `## Session intent\n- The work goes on as the user asked.\n## Facts from tools\n- ${fitting(kept, room, counter)}`;
  };
}

/** Names a line, ended by a reference to a message of the material. */
const NAMES_A_LINE = 6;

function notesOf(names: readonly string[], tokens: number, material: string, counter: TokenCounter): string {
  const seq = /^<\d{3}>(\d+) /m.exec(material)?.[1] ?? /\[m(\d+)/.exec(material)?.[1] ?? '1';
  const lines: string[] = [];
  let left = tokens;
  for (let at = 0; at < names.length; at += NAMES_A_LINE) {
    const line = `- ${names.slice(at, at + NAMES_A_LINE).join(' ')} [m${seq}]`;
    left -= counter.count(`${line}\n`);
    if (left < 0) break;
    lines.push(line);
  }
  return [
    '## Notes',
    ...(lines.length === 0 ? ['- Nothing else was named.'] : lines),
    '## State',
    '- none',
  ].join('\n');
}

/** As many of the first names as fit into `room`. */
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

/** The delimiters and labels around the data, whose nonces and numbers are not content. */
function withoutFrame(content: string): string {
  return content
    .replace(
      /<\/?(?:transcript|record|notes|state|follows|digest|previous_snapshot|state_snapshot)\b[^>\n]{0,80}>/g,
      ' ',
    )
    .replace(/^<\d{3}>\d+ .*$|\[m\d[^\]\n]{0,40}\]/gm, ' ')
    .replace(
      /<message seq="[^\n>]{0,400}>|<\/message>|<call name="[^">]{0,100}"(?: id="[^">]{0,60}")?>|<\/call>/g,
      ' ',
    );
}

function survives(name: string, call: string, q: number): boolean {
  const drawn = createHash('sha256').update(`${call} ${name}`).digest().readUInt32BE(0) / 2 ** 32;
  return drawn < q;
}
