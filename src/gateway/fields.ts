/** Changes a JSON object in its text, so that everything else keeps its bytes. */
import type { Json } from '../conversation/message.js';

/** Begin and end of a value. */
interface Span {
  from: number;
  to: number;
}

interface Member extends Span {
  key: string;
}

/** `text` must be valid JSON of an object. A field that it does not have is added at its end. */
export function withFields(text: string, fields: Readonly<Record<string, Json>>): string {
  const members = membersOf(text);
  let comma = members.list.length === 0 ? '' : ',';
  const changes = Object.entries(fields).map(([key, value]) => {
    const member = members.list.findLast((one) => one.key === key);
    const json = JSON.stringify(value);
    if (member) return { ...member, json };
    const added = `${comma}${JSON.stringify(key)}:${json}`;
    comma = ',';
    return { key, from: members.end, to: members.end, json: added };
  });
  changes.sort((a, b) => a.from - b.from);
  let made = '';
  let at = 0;
  for (const { from, to, json } of changes) {
    made += text.slice(at, from) + json;
    at = to;
  }
  return made + text.slice(at);
}

/** Takes items out of a list, to which `path` leads. `text` must be valid JSON of an object. */
export function withoutItems(text: string, path: readonly string[], isOut: (item: Json) => boolean): string {
  const [key, ...rest] = path;
  const member = membersOf(text).list.findLast((one) => one.key === key);
  if (!member) return text;
  const value = text.slice(member.from, member.to);
  const left = rest.length > 0 ? withoutItems(value, rest, isOut) : listWithout(value, isOut);
  return text.slice(0, member.from) + left + text.slice(member.to);
}

/** An item goes with the comma before it. */
function listWithout(text: string, isOut: (item: Json) => boolean): string {
  const items = itemsOf(text);
  const kept = items.filter(({ from, to }) => !isOut(JSON.parse(text.slice(from, to)) as Json));
  const last = items.at(-1);
  if (last === undefined || kept.length === items.length) return text;
  const shown = kept.map((item, index) => {
    const before = items[items.indexOf(item) - 1];
    return text.slice(index === 0 || !before ? item.from : before.to, item.to);
  });
  const begin = items[0]?.from ?? 0;
  return text.slice(0, begin) + shown.join('') + text.slice(last.to);
}

function itemsOf(text: string): Span[] {
  const list: Span[] = [];
  if (!text.startsWith('[')) return list;
  for (let at = afterSpace(text, 1); at < text.length && text[at] !== ']'; at = afterSpace(text, at)) {
    if (text[at] === ',') at = afterSpace(text, at + 1);
    const from = at;
    at = afterValue(text, from);
    list.push({ from, to: at });
  }
  return list;
}

/** `end`: where a further member can be added. */
function membersOf(text: string): { list: Member[]; end: number } {
  const list: Member[] = [];
  let at = text.indexOf('{') + 1;
  let end = at;
  for (;;) {
    at = afterSpace(text, at);
    if (text[at] === ',') at = afterSpace(text, at + 1);
    if (text[at] !== '"') return { list, end };
    const keyEnd = afterString(text, at);
    const key = JSON.parse(text.slice(at, keyEnd)) as string;
    const from = afterSpace(text, afterSpace(text, keyEnd) + 1);
    at = afterValue(text, from);
    end = at;
    list.push({ key, from, to: at });
  }
}

const space = /[ \t\n\r]*/y;

function afterSpace(text: string, at: number): number {
  space.lastIndex = at;
  space.test(text);
  return space.lastIndex;
}

function afterString(text: string, at: number): number {
  for (let end = text.indexOf('"', at + 1); end > 0; end = text.indexOf('"', end + 1)) {
    let backslashes = 0;
    while (text[end - 1 - backslashes] === '\\') backslashes++;
    if (backslashes % 2 === 0) return end + 1;
  }
  return text.length;
}

const mark = /["{}[\]]/g;
const scalarEnd = /[,}\]\s]|$/g;

function afterValue(text: string, from: number): number {
  if (text[from] === '"') return afterString(text, from);
  if (text[from] !== '{' && text[from] !== '[') {
    scalarEnd.lastIndex = from;
    return scalarEnd.exec(text)?.index ?? text.length;
  }
  let depth = 0;
  let at = from;
  for (;;) {
    mark.lastIndex = at;
    const found = mark.exec(text);
    if (found === null) return text.length;
    at = found.index + 1;
    if (found[0] === '"') at = afterString(text, found.index);
    else depth += found[0] === '{' || found[0] === '[' ? 1 : -1;
    if (depth === 0) return at;
  }
}
