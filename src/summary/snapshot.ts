/**
 * The sections of a snapshot, shared by the prompts, the extractive summarizer and whoever reads a snapshot back.
 * A snapshot is Markdown: `## <title>`, then `- ` bullets.
 */
export const sections = [
  {
    key: 'intent',
    title: 'Session intent',
    asks: 'what the user wants, newest request last, marked done / in progress / open',
  },
  {
    key: 'constraints',
    title: 'Constraints and preferences',
    asks: 'rules and wishes of user or system, in their own words',
  },
  {
    key: 'decisions',
    title: 'Decisions',
    asks: 'what was decided, with the reason; what was tried and failed',
  },
  {
    key: 'artifacts',
    title: 'Artifacts',
    asks: 'files and objects by full path or id, and what changed in them',
  },
  {
    key: 'facts',
    title: 'Facts from tools',
    asks: 'findings, values and errors, each with its origin (tool:name)',
  },
  { key: 'state', title: 'Current state', asks: 'where the work stands, the last answers given' },
  { key: 'next', title: 'Next steps', asks: 'what is left to do' },
] as const;

export type SectionKey = (typeof sections)[number]['key'];

export function headingOf(key: SectionKey): string {
  return `## ${sections.find((section) => section.key === key)!.title}`;
}

/** First words of headings as models write them, in place of ours. */
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
  /^(?:#{1,6}[ \t]+|\*\*)?(?:\d{1,2}[.)][ \t]+)?([A-Za-z][A-Za-z ,&/-]{2,60}?)[ \t]*:?(?:\*\*)?[ \t]*:?$/;

/** The section a line opens: a Markdown heading, a bold line, or a title on a line of its own; null for other lines. */
function sectionAt(line: string): SectionKey | null {
  if (line.length > 90) return null;
  const title = headingLine.exec(line.trim())?.[1]?.toLowerCase();
  if (title === undefined) return null;
  const exact = sections.find((section) => section.title.toLowerCase() === title);
  if (exact) return exact.key;
  const isMarked = /^(#{1,6}\s|\*\*|\d)/.test(line.trim());
  return (isMarked && spellings.find(([spelling]) => spelling.test(title))?.[1]) || null;
}

export function hasSections(text: string): boolean {
  return text.split('\n').some((line) => sectionAt(line) !== null);
}

/** Items of each section in order, bullets removed. Text before the first heading, and free text, counts as `state`. */
export function parseSnapshot(text: string): Map<SectionKey, string[]> {
  const items = new Map<SectionKey, string[]>(sections.map(({ key }) => [key, []]));
  let key: SectionKey = 'state';
  for (const line of text.split('\n')) {
    const opened = sectionAt(line);
    if (opened) key = opened;
    else addLine(items.get(key)!, line);
  }
  return items;
}

/** A bullet begins an item, an indented or plain line continues the one before. */
function addLine(items: string[], line: string): void {
  const text = line.trim();
  if (text === '') return;
  const bullet = /^(?:[-*+•]|\d{1,3}[.)])\s+/.exec(text);
  const last = items.length - 1;
  if (bullet) items.push(text.slice(bullet[0].length));
  else if (last >= 0 && /^\s/.test(line)) items[last] += ` ${text}`;
  else items.push(text);
}

/** Snapshot text of the sections that hold something. Every item becomes one line, so none can open a section. */
export function formatSnapshot(items: ReadonlyMap<SectionKey, readonly string[]>): string {
  return sections
    .filter(({ key }) => (items.get(key) ?? []).length > 0)
    .map(({ key }) =>
      [headingOf(key), ...(items.get(key) ?? []).map((item) => `- ${oneLine(item)}`)].join('\n'),
    )
    .join('\n');
}

export function oneLine(text: string): string {
  return text.replace(/\s+/g, ' ').trim();
}
