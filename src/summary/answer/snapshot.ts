import { factsSection, isLayerHeading, sections, type Section, type SectionKey } from './sections.js';

/**
 * Reads and writes the Markdown of a snapshot: `## <title>`, then `- ` bullets. Every function uses the built-in sections by
 * default.
 */
export function headingOf(key: string, among: readonly Section[] = sections): string {
  return `## ${[...among, factsSection].find((section) => section.key === key)?.title ?? key}`;
}

/** First words of headings that models write instead of the built-in headings. */
const spellings: [RegExp, SectionKey][] = [
  [/^(session |user |primary )?(intent|goals?|objectives?|requests?)\b/, 'intent'],
  [/^(constraints?|preferences|rules|user (rules|preferences|constraints))\b/, 'constraints'],
  [/^(key )?decisions?\b/, 'decisions'],
  [/^(artifacts?|files?)\b/, 'artifacts'],
  [/^(key )?(facts?|findings|tool (results|facts))\b/, 'facts'],
  [/^(current )?(state|status|progress)\b/, 'state'],
  [/^(next|remaining|open|pending)( steps?| tasks?| work)?\b/, 'next'],
];

const headingLine =
  /^(#{1,6}[ \t]+)?(\*\*)?(?:\d{1,2}[.)][ \t]+)?([\p{L}][^\n#*]{1,62}?)[ \t]*:?(\*\*)?[ \t]*:?$/u;

/** The section that a title names, in the policy's wording or, for built-in keys, in the wording of models; null for another title. */
export function sectionNamed(title: string, among: readonly Section[] = sections): string | null {
  const name = plain(title);
  const exact = [...among, factsSection].find((section) => plain(section.title) === name);
  return exact?.key ?? spelled(title, among);
}

function spelled(title: string, among: readonly Section[]): string | null {
  const name = title.toLowerCase().trim();
  const key = spellings.find(([spelling]) => spelling.test(name))?.[1];
  return key !== undefined && among.some((section) => section.key === key) ? key : null;
}

function plain(title: string): string {
  return title.toLowerCase().replace(/\s+/g, ' ').trim();
}

/** The section that a line opens as a Markdown heading, a bold line, or a title alone on a line; null for other lines. */
export function sectionAt(line: string, among: readonly Section[] = sections): string | null {
  if (line.length > 90) return null;
  const text = line.trim();
  const heading = headingLine.exec(text);
  const title = heading?.[3];
  if (!heading || title === undefined) return null;
  const name = plain(title);
  const exact = [...among, factsSection].find((section) => plain(section.title).replace(/:$/, '') === name);
  if (exact) return exact.key;
  const isMarked = /^(#{1,6}\s|\*\*|\d)/.test(text);
  return isMarked && /^[A-Za-z][A-Za-z ,&/-]{2,60}$/.test(title) ? spelled(title, among) : null;
}

export function hasSections(text: string, among: readonly Section[] = sections): boolean {
  return text.split('\n').some((line) => sectionAt(line, among) !== null);
}

/**
 * Returns the items of each section in order, without bullets. Text before the first heading, and text after the heading of a
 * layer, counts as `state`, or as the last section if there is no `state`.
 */
export function parseSnapshot(text: string): Map<SectionKey, string[]>;
export function parseSnapshot(text: string, among: readonly Section[]): Map<string, string[]>;

export function parseSnapshot(text: string, among: readonly Section[] = sections): Map<string, string[]> {
  const items = new Map<string, string[]>(among.map(({ key }) => [key, []]));
  const unnamed = items.has('state') ? 'state' : (among.at(-1)?.key ?? 'state');
  let key = unnamed;
  for (const line of text.split('\n')) {
    if (isLayerHeading(line)) {
      key = unnamed;
      continue;
    }
    const opened = sectionAt(line, among);
    if (opened !== null) key = opened;
    else addLine(itemsOf(key), line);
  }
  return items;

  function itemsOf(section: string): string[] {
    const known = items.get(section) ?? [];
    items.set(section, known);
    return known;
  }
}

const bulletMark = /^(?:[-*+•]|\d{1,3}[.)])\s+/;

/** A bullet or an unindented line begins an item; an indented line continues the item before. */
function addLine(items: string[], line: string): void {
  const text = line.trim();
  if (text === '') return;
  const bullet = bulletMark.exec(text);
  const last = items.length - 1;
  if (bullet) items.push(text.slice(bullet[0].length));
  else if (last >= 0 && /^\s/.test(line)) items[last] += ` ${text}`;
  else items.push(text);
}

/** The snapshot text of the sections that are not empty. Every item becomes one line, so that no item can open a section. */
export function formatSnapshot(
  items: ReadonlyMap<string, readonly string[]>,
  among: readonly Section[] = sections,
): string {
  const shown = among.some(({ key }) => key === factsSection.key) ? among : [...among, factsSection];
  return shown
    .filter(({ key }) => (items.get(key) ?? []).length > 0)
    .map(({ key }) =>
      [headingOf(key, shown), ...(items.get(key) ?? []).map((item) => `- ${oneLine(item)}`)].join('\n'),
    )
    .join('\n');
}

export function oneLine(text: string): string {
  return text.replace(/\s+/g, ' ').trim();
}
