/**
 * Requests summaries as JSON by schema, and reads answers tolerantly, since endpoints may ignore a schema and models may
 * deviate from it.
 */
import { PalimpsestError } from '../../errors.js';
import { unwrapped } from './accept.js';
import { hasSections, formatSnapshot, oneLine, sectionNamed } from './snapshot.js';
import type { Section } from './sections.js';

/** JSON schema of a summary: an object with one array of strings per section. */
export interface SummarySchema {
  type: 'object';
  properties: Record<string, { type: 'array'; description: string; items: { type: 'string' } }>;
  required: string[];
  additionalProperties: false;
}

/** The form of OpenAI's strict mode: every property is required, and further properties are forbidden. */
export function schemaOf(sections: readonly Section[]): SummarySchema {
  return {
    type: 'object',
    properties: Object.fromEntries(
      sections.map(({ key, title, asks }) => [
        key,
        { type: 'array', description: asks === '' ? title : `${title}: ${asks}`, items: { type: 'string' } },
      ]),
    ),
    required: sections.map(({ key }) => key),
    additionalProperties: false,
  };
}

/**
 * The Markdown of an answer. A JSON object (also fenced, within prose, nested, with other spellings of keys, or with strings
 * for arrays) becomes a snapshot in section order. Any other answer stays unchanged; acceptance checks it. Throws
 * `Llm.BadOutput` for truncated or invalid JSON.
 */
export function readSummary(answer: string, { sections }: { sections: readonly Section[] }): string {
  const text = unwrapped(answer, sections);
  const start = jsonStart(text, sections);
  if (start === null) return text;
  const end = endOfObject(text, start);
  const isWhole = start === 0;
  if (end === null) {
    if (isWhole || namesSection(text.slice(start), sections))
      throw unreadable('is cut off in the middle of its JSON', answer);
    return text;
  }
  const value = parsed(text.slice(start, end));
  if (value === undefined) {
    if (isWhole && namesSection(text, sections)) throw unreadable('is not valid JSON', answer);
    return text;
  }
  const items = new Map<string, string[]>();
  collect(value, sections, items);
  const named = [...items.keys()].length;
  if (named === 0 || (!isWhole && named < 2 && end - start < text.length / 2)) return text;
  return formatSnapshot(items, sections);
}

function unreadable(reason: string, answer: string): PalimpsestError {
  return new PalimpsestError('Llm.BadOutput', `the summary ${reason}`, {
    details: { characters: answer.length },
    hint: 'Nothing was replaced. Raise summary.maxTokens or set summary.structured: off if this repeats.',
  });
}

/** Start of an object that may be the answer; null if the text is Markdown, with or without objects in it. */
function jsonStart(text: string, sections: readonly Section[]): number | null {
  if (text.startsWith('{') || text.startsWith('[')) return 0;
  const opening = /(?:^|[\s:])([{[])\s*["{]/.exec(text.slice(0, 2_000));
  if (!opening) return null;
  const start = opening.index + opening[0].indexOf(opening[1] ?? '{');
  return hasSections(text.slice(0, start), sections) ? null : start;
}

/** Position after the value that begins at `start`; null if it does not end. Braces in strings do not count. */
function endOfObject(text: string, start: number): number | null {
  let depth = 0;
  let inString = false;
  for (let at = start; at < text.length; at++) {
    const character = text[at];
    if (inString) {
      if (character === '\\') at++;
      else if (character === '"') inString = false;
    } else if (character === '"') inString = true;
    else if (character === '{' || character === '[') depth++;
    else if ((character === '}' || character === ']') && --depth === 0) return at + 1;
  }
  return null;
}

/**
 * Parses JSON, also with line ends inside strings or superfluous commas, which smaller models write. Returns undefined for
 * other text.
 */
function parsed(json: string): unknown {
  for (const candidate of [json, repaired(json)]) {
    try {
      const value: unknown = JSON.parse(candidate);
      return value;
    } catch {
      continue;
    }
  }
  return undefined;
}

function repaired(json: string): string {
  return json.replace(/"(?:[^"\\]|\\[^])*"?|,(?=\s{0,100}[}\]])/g, (found) =>
    found === ',' ? '' : found.replace(/[\u0000-\u001F]/g, (control) => JSON.stringify(control).slice(1, -1)),
  );
}

function namesSection(text: string, sections: readonly Section[]): boolean {
  const keys = [...text.slice(0, 4_000).matchAll(/"([^"\\\n]{1,60})"\s*:/g)];
  return keys.some(([, key]) => key !== undefined && sectionOfKey(key, sections) !== null);
}

/** The section that a key of the answer names: `intent`, `Session intent`, `sessionIntent`, `next_steps`, `goals`. */
function sectionOfKey(key: string, sections: readonly Section[]): string | null {
  const exact = sections.find(
    (section) => squeezed(section.key) === squeezed(key) || squeezed(section.title) === squeezed(key),
  );
  if (exact) return exact.key;
  const words = key
    .replace(/([a-z\d])([A-Z])/g, '$1 $2')
    .replace(/[_\-.]+/g, ' ')
    .replace(/^#+\s*/, '');
  return sectionNamed(words, sections);
}

function squeezed(text: string): string {
  return text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '');
}

/** Maximum depth of nested objects in which sections are found. */
const DEEPEST = 4;
const titleKeys = ['section', 'title', 'heading', 'key', 'name'];
const itemKeys = ['items', 'bullets', 'content', 'points', 'entries', 'text', 'value'];

/**
 * Adds the items of an answer's sections to `items`. If an object has fields that name sections, its other fields join the
 * section `state` or, if the policy has none, the last section.
 */
function collect(
  value: unknown,
  sections: readonly Section[],
  items: Map<string, string[]>,
  depth = 0,
): void {
  if (depth > DEEPEST || typeof value !== 'object' || value === null) return;
  if (Array.isArray(value)) {
    for (const entry of value) collectTitled(entry, sections, items, depth);
    return;
  }
  const fields = Object.entries(value as Record<string, unknown>);
  const [only] = fields;
  if (fields.length === 1 && only && holdsSections(only[1], sections)) {
    collect(only[1], sections, items, depth + 1);
    return;
  }
  const named = fields.flatMap(([key, inner]) => {
    const section = sectionOfKey(key, sections);
    return section === null ? [] : [{ section, inner }];
  });
  if (named.length === 0) {
    for (const [, inner] of fields) collect(inner, sections, items, depth + 1);
    return;
  }
  for (const { section, inner } of named) add(items, section, itemsOf(inner));
  const rest = fields.filter(([key]) => sectionOfKey(key, sections) === null);
  const unnamed = sections.find(({ key }) => key === 'state') ?? sections.at(-1);
  for (const [key, inner] of rest) {
    if (unnamed)
      add(
        items,
        unnamed.key,
        itemsOf(inner).map((item) => `${key}: ${item}`),
      );
  }
}

/** An object around the answer may have the name of a section, as `state_snapshot` does. */
function holdsSections(value: unknown, sections: readonly Section[]): boolean {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  return Object.keys(value).some((key) => sectionOfKey(key, sections) !== null);
}

/** `{"section": "Decisions", "items": [...]}` in a list of sections. */
function collectTitled(
  entry: unknown,
  sections: readonly Section[],
  items: Map<string, string[]>,
  depth: number,
): void {
  if (typeof entry !== 'object' || entry === null || Array.isArray(entry)) return;
  const fields = new Map<string, unknown>(Object.entries(entry));
  const title = titleKeys.map((key) => fields.get(key)).find((given) => typeof given === 'string');
  const section = typeof title === 'string' ? sectionOfKey(title, sections) : null;
  const held = itemKeys.find((key) => fields.has(key));
  if (section !== null && held !== undefined) add(items, section, itemsOf(fields.get(held)));
  else collect(entry, sections, items, depth + 1);
}

function add(items: Map<string, string[]>, section: string, found: readonly string[]): void {
  items.set(section, [...(items.get(section) ?? []), ...found]);
}

/**
 * Returns the bullets in a value of any shape: one for each line of a string, entry of a list, or field of an object (as `key:
 * value`).
 */
function itemsOf(value: unknown, depth = 0): string[] {
  if (value === null || value === undefined || depth > DEEPEST) return [];
  if (typeof value === 'string') return value.split('\n').map(bullet).filter(saysSomething);
  if (Array.isArray(value)) return value.flatMap((entry) => oneItem(entry, depth));
  if (typeof value === 'object') {
    return Object.entries(value).flatMap(([key, inner]) => {
      const inside = itemsOf(inner, depth + 1);
      return inside.length === 0 ? [] : [`${key}: ${inside.join('; ')}`];
    });
  }
  return typeof value === 'number' || typeof value === 'boolean' ? [String(value)] : [];
}

/** Makes one bullet of a list entry of any shape. */
function oneItem(entry: unknown, depth: number): string[] {
  if (typeof entry === 'string') return saysSomething(entry) ? [bullet(oneLine(entry))] : [];
  const inside = itemsOf(entry, depth + 1);
  return inside.length === 0 ? [] : [inside.join('; ')];
}

function bullet(line: string): string {
  return line.trim().replace(/^(?:[-*+•]|\d{1,3}[.)])\s+/, '');
}

function saysSomething(text: string): boolean {
  return /[\p{L}\p{N}]/u.test(text) && !/^(?:none|n\/?a|nothing|null|empty)[.]?$/i.test(text.trim());
}
