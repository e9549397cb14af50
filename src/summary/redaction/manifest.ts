/** Values in Kubernetes secrets: any value below `data` and `stringData` is secret, whatever its name. */
import type { Span } from './views.js';

/** Characters of a manifest that are read before and after `kind: Secret`. */
const MOST_BEFORE = 20_000;
const MOST_AFTER = 100_000;

const isManifest = /^[ \t]{0,40}kind:[ \t]{0,4}["']?Secret["']?[ \t]*$/gm;
const isJsonManifest = /"kind"\s{0,4}:\s{0,4}"Secret"/g;
const isData = /^([ \t]{0,40})(?:data|stringData):[ \t]*\r?$/;
const isEntry = /^([ \t]+)["']?[\w.-]{1,200}["']?:[ \t]*(.*)\r?$/;

export function* manifestValues(text: string): Generator<Span> {
  if (!text.includes('Secret')) return;
  let done = 0;
  for (const { index } of text.matchAll(isManifest)) {
    if (index < done) continue;
    const least = Math.max(done, index - MOST_BEFORE);
    const from = least + text.slice(least, index).lastIndexOf('\n---') + 1;
    const after = text.slice(index, index + MOST_AFTER);
    const end = after.indexOf('\n---');
    const to = index + (end === -1 ? after.length : end);
    yield* valuesIn(text, from, to);
    done = to;
  }
  for (const { index } of text.matchAll(isJsonManifest)) {
    const from = Math.max(done, index - MOST_BEFORE);
    const part = text.slice(from, index + MOST_AFTER);
    for (const block of part.matchAll(/"(?:data|stringData)"\s{0,4}:\s{0,4}\{([^{}]{0,50000})\}/g))
      for (const value of block[0].matchAll(/:\s{0,4}"([^"\n]{1,20000})"/g))
        yield spanOf(from + block.index + value.index + value[0].length - 1 - value[1]!.length, value[1]!);
    done = from + part.length;
  }
}

/** The values of the lines below `data`, as long as they are indented deeper. */
function* valuesIn(text: string, from: number, to: number): Generator<Span> {
  let depth = -1;
  let block = -1;
  let at = from;
  for (const line of text.slice(from, to).split('\n')) {
    const indent = line.length - line.trimStart().length;
    const data = isData.exec(line);
    const entry = isEntry.exec(line);
    if (line.trim() === '') {
      // An empty line ends nothing.
    } else if (data !== null) [depth, block] = [indent, -1];
    else if (depth >= 0 && indent <= depth) depth = -1;
    else if (depth >= 0 && block >= 0 && indent > block) yield spanOf(at + indent, line.trim());
    else if (depth >= 0 && entry !== null) {
      const value = withoutBlanks(entry[2]!);
      block = /^[|>][-+\d]{0,2}$/.test(value) ? indent : -1;
      if (value !== '' && block === -1 && !/^["']{2}$|^\{\{|^\$\{/.test(value))
        yield spanOf(at + line.lastIndexOf(value), value);
    }
    at += line.length + 1;
  }
}

/** The text without spaces and tabs at its end. */
function withoutBlanks(text: string): string {
  let end = text.length;
  while (text[end - 1] === ' ' || text[end - 1] === '\t') end -= 1;
  return text.slice(0, end);
}

const spanOf = (from: number, value: string): Span => ({ from, to: from + value.length });
