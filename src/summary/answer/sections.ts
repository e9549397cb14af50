/** The sections of a snapshot (built in, or from a policy), and the entries of a journal. */
import type { SectionInput } from '../../policy/summary-schema.js';

/** One section of a snapshot: `## <title>`, then `- ` bullets. `asks` tells the summarizer what belongs there. */
export interface Section {
  key: string;
  title: string;
  asks: string;
}

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
] as const satisfies readonly Section[];

export type SectionKey = (typeof sections)[number]['key'];

/** The section for claims of tools, also if the policy has other sections. */
export const factsSection: Section = sections[4];

/**
 * The sections of a policy, in its order. Built-in keys take missing fields from the built-in section; only the first of
 * duplicate keys counts. null: the built-in sections.
 */
export function resolveSections(input: readonly SectionInput[] | null): Section[] {
  if (input === null) return sections.map((section) => ({ ...section }));
  const resolved = new Map<string, Section>();
  for (const { key, title, asks } of input) {
    const builtIn = sections.find((section) => section.key === key);
    if (resolved.has(key)) continue;
    resolved.set(key, {
      key,
      title: title?.trim() ?? builtIn?.title ?? key,
      asks: asks?.trim() ?? builtIn?.asks ?? '',
    });
  }
  return [...resolved.values()];
}

const layerHeading = /^#{1,6}[ \t]+Messages[ \t]\d{1,15}(?:–\d{1,15})?(?:,[ \t][\w –]{1,50})?[ \t]*$/;

export function isLayerHeading(line: string): boolean {
  return line.length < 100 && layerHeading.test(line);
}

interface LayerRange {
  fromSeq: number;
  throughSeq: number;
  days?: readonly [string, string];
}

/**
 * Joins layers to one snapshot, oldest first, each under `### Messages 1–57`, or `### Messages 1–57, 7–9 May 2023`. Further
 * layers follow at the end, so the text of earlier layers never changes. A line of a layer that looks like such a heading loses
 * its `#` marks.
 */
export function layeredSnapshot(layers: readonly (LayerRange & { text: string })[]): string {
  return layers
    .map(
      ({ text, ...range }) =>
        `${headingOf(range)}\n${text.split('\n').map(withoutForgedHeading).join('\n').trim()}`,
    )
    .join('\n\n');
}

function headingOf({ fromSeq, throughSeq, days }: LayerRange): string {
  const range = fromSeq === throughSeq ? `${fromSeq}` : `${fromSeq}–${throughSeq}`;
  return `### Messages ${range}${days === undefined ? '' : `, ${daysText(days)}`}`;
}

/** The line in place of a dropped layer. */
const leftOutLine = '- left out for want of room; the archive holds it';

/** The line in place of a dropped layer, under its heading. */
export function leftOut(range: LayerRange): string {
  return `${headingOf(range)}\n${leftOutLine}`;
}

/** A layer in a layered snapshot: its messages, and where it begins. */
interface PlacedLayer {
  fromSeq: number;
  throughSeq: number;
  at: number;
}

/** The layers of a layered snapshot, found by their headings. */
export function placedLayers(snapshot: string): PlacedLayer[] {
  const placed: PlacedLayer[] = [];
  let at = 0;
  for (const line of snapshot.split('\n')) {
    const [, from, through = from] = (isLayerHeading(line) && /(\d+)(?:–(\d+))?/.exec(line)) || [];
    if (from !== undefined) placed.push({ fromSeq: Number(from), throughSeq: Number(through), at });
    at += line.length + 1;
  }
  return placed;
}

const months = 'January February March April May June July August September October November December'.split(
  ' ',
);

/** `7 May 2023`, `7–9 May 2023`, `28 May – 3 June 2023`, `30 December 2022 – 2 January 2023`. */
function daysText([first, last]: readonly [string, string]): string {
  const parts = (day: string) => {
    const [year = '', month = '', date = ''] = day.split('-');
    return { year, month: months[Number(month) - 1] ?? '', date: String(Number(date)) };
  };
  const [from, to] = [parts(first), parts(last)];
  const end = `${to.date} ${to.month} ${to.year}`;
  if (first === last) return end;
  if (from.year !== to.year) return `${from.date} ${from.month} ${from.year} – ${end}`;
  return from.month === to.month ? `${from.date}–${end}` : `${from.date} ${from.month} – ${end}`;
}

function withoutForgedHeading(line: string): string {
  const plain = line.trim();
  return isLayerHeading(plain) ? plain.replace(/^#+\s*/, '') : line;
}

/** The texts of the layers in a layered snapshot; empty for any other snapshot. */
export function layersOf(snapshot: string): string[] {
  const layers: string[][] = [];
  for (const line of snapshot.split('\n')) {
    if (isLayerHeading(line)) layers.push([]);
    else layers.at(-1)?.push(line);
  }
  return layers.map((lines) => lines.join('\n').trim());
}
