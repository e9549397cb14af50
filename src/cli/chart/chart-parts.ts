import { count } from '../../numbers.js';
import type { ChartSeries } from './series.js';

/** Colour of the line on light and on dark pages, and its dashes, so that colours are not all that tells lines apart. */
const styles: readonly [light: string, dark: string, dash: string][] = [
  ['#0b62c4', '#6cb2ff', ''],
  ['#c2410c', '#ff9d5c', ''],
  ['#15803d', '#5ddb87', '9 3'],
  ['#9333ea', '#cc9bff', '3 3'],
  ['#be185d', '#ff8fc0', '12 3 3 3'],
  ['#0f766e', '#4fd9cb', '6 2'],
  ['#a16207', '#f2c84b', '2 2'],
  ['#475569', '#b6c2d2', '14 4'],
  ['#4d7c0f', '#b5e05a', ''],
  ['#4338ca', '#a5a8ff', '5 3'],
  ['#9f1239', '#ff8d8d', '8 2 2 2'],
  ['#155e75', '#67d7f0', '1 3'],
];

const greys = ['#8a8f98', '#7d838d', ''] as const;

/** Style number of a series; the reference has none of its own. */
export function styleNames(series: readonly ChartSeries[]): (one: ChartSeries) => string {
  const coloured = series.filter(({ reference }) => !reference);
  return (one) => (one.reference ? 'ref' : `s${coloured.indexOf(one) % styles.length}`);
}

export function styleSheet(series: readonly ChartSeries[]): string {
  const coloured = Math.min(styles.length, series.filter(({ reference }) => !reference).length);
  const used = [
    ['ref', greys] as const,
    ...styles.slice(0, coloured).map((style, index) => [`s${index}`, style] as const),
  ];
  const colours = (dark: 0 | 1) =>
    used.map(([name, style]) => `.${name}{stroke:${style[dark]}}.m-${name}{fill:${style[dark]}}`).join('');
  const dashes = used
    .flatMap(([name, [, , dash]]) => (dash ? [`path.${name}{stroke-dasharray:${dash}}`] : []))
    .join('');
  return [
    'text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#24292f}',
    '.title{font-size:17px;font-weight:600}.quiet{fill:#57606a}.end{text-anchor:end}.middle{text-anchor:middle}',
    '.page{fill:#fff}.grid{stroke:#d9dee4}.axis{stroke:#8b949e}.rule{stroke:#24292f;stroke-dasharray:7 4}',
    'path{fill:none;stroke-width:1.8;stroke-linejoin:round}.own{stroke-width:1;stroke-dasharray:2 4;opacity:.75}.mark{stroke:#fff;stroke-width:1}',
    `${colours(0)}${dashes}`,
    '@media (prefers-color-scheme:dark){text{fill:#e6edf3}.quiet{fill:#9ba5b0}.page{fill:#0d1117}.grid{stroke:#262d36}',
    `.axis{stroke:#6b7480}.rule{stroke:#e6edf3}.mark{stroke:#0d1117}${colours(1)}}`,
  ].join('');
}

export function line(style: string, x1: number, y1: number, x2: number, y2: number): string {
  return `<line class="${style}" x1="${rounded(x1)}" y1="${rounded(y1)}" x2="${rounded(x2)}" y2="${rounded(y2)}"/>`;
}

export function text(x: number, y: number, style: string, content: string): string {
  return `<text class="${style}" x="${rounded(x)}" y="${rounded(y)}">${escaped(content)}</text>`;
}

/** 1, 2, 2.5 or 5 times a power of ten, at least `size`; divided by five it stays even. */
export function niceCeiling(size: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, size)));
  return power * ([1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10].find((factor) => factor * power >= size) ?? 10);
}

export const rounded = (value: number): string => String(Math.round(value * 10) / 10);
export const roundedCount = (value: number): string => count(Math.round(value));

/** Colours and text of a chart: nothing here depends on what is drawn. */
export function shortened(content: string, most: number): string {
  const characters = Array.from(content);
  return characters.length <= most ? content : `${characters.slice(0, most - 1).join('')}…`;
}

/** XML allows no control characters and no half surrogate pairs, not even escaped. */
export function escaped(content: string): string {
  return content
    .replaceAll(/[\p{Cc}\p{Cs}\p{Bidi_Control}\uFFFE\uFFFF]/gu, '\uFFFD')
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}
