import { count } from '../../numbers.js';
import { shortenEnd } from '../terminal/table.js';

export interface ChartPoint {
  /** Counts from 1. */
  turn: number;
  /** Null interrupts the line. */
  size: number | null;
}

export interface ChartSeries {
  name: string;
  /** Text after the name in the legend. */
  note: string;
  /** Ascending by turn; several points of one turn are drawn one above the other. */
  points: readonly ChartPoint[];
  /** Points to mark on the line. */
  marks: readonly ChartPoint[];
  /** A size drawn as a horizontal line in the colour of the series; null for none. */
  rule: number | null;
  /** Marks the baseline of a comparison: it is drawn in grey, and the scale may cut off its largest sizes. */
  reference: boolean;
}

export interface Chart {
  title: string;
  subtitle: string;
  /** An important remark, drawn on a separate line. */
  remark?: string;
  xLabel: string;
  yLabel: string;
  series: readonly ChartSeries[];
  /** Sizes that apply to all series, such as a window. */
  rules: readonly { size: number; label: string }[];
}

/** Colours of the line on light and dark pages, and its dashes, so that lines differ by more than colour. */
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

/** Returns the style of a series; the reference has a fixed style. */
function styleNames(series: readonly ChartSeries[]): (one: ChartSeries) => string {
  const coloured = series.filter(({ reference }) => !reference);
  return (one) => (one.reference ? 'ref' : `s${coloured.indexOf(one) % styles.length}`);
}

function styleSheet(series: readonly ChartSeries[]): string {
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

function line(style: string, x1: number, y1: number, x2: number, y2: number): string {
  return `<line class="${style}" x1="${rounded(x1)}" y1="${rounded(y1)}" x2="${rounded(x2)}" y2="${rounded(y2)}"/>`;
}

function text(x: number, y: number, style: string, content: string): string {
  return `<text class="${style}" x="${rounded(x)}" y="${rounded(y)}">${escaped(content)}</text>`;
}

/** Returns 1, 2, 2.5 or 5 times a power of ten, at least `size`; a fifth of it is a round number. */
export function niceCeiling(size: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, size)));
  return power * ([1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10].find((factor) => factor * power >= size) ?? 10);
}

const rounded = (value: number): string => String(Math.round(value * 10) / 10);
const roundedCount = (value: number): string => count(Math.round(value));

/** XML allows neither control characters nor unpaired surrogates, not even in escaped form. */
function escaped(content: string): string {
  return content
    .replaceAll(/[\p{Cc}\p{Cs}\p{Bidi_Control}\uFFFE\uFFFF]/gu, '\uFFFD')
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}

const width = 960;
const plot = { left: 76, top: 78, width: 860, height: 380 };
const legendRow = 20;

/**
 * Steps of the plot, each of which keeps its first, smallest, largest and last size; differences within a step are invisible.
 */
const steps = 430;

/**
 * Draws a line chart of sizes over turns as SVG, readable on light and dark pages, without external fonts or scripts. Names and
 * titles are escaped.
 */
export function chartSvg(chart: Chart): string {
  const turns = Math.max(1, ...chart.series.map(({ points }) => points.at(-1)?.turn ?? 1));
  const top = niceCeiling(largestShown(chart));
  const x = (turn: number) => plot.left + ((turn - 1) / Math.max(1, turns - 1)) * plot.width;
  const y = (size: number) => plot.top + plot.height * (1 - size / top);
  const legendTop = plot.top + plot.height + 62;
  const height = legendTop + Math.ceil(chart.series.length / 2) * legendRow + 14;
  const styleOf = styleNames(chart.series);
  const lines = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-labelledby="title subtitle">`,
    `<title id="title">${escaped(chart.title)}</title>`,
    `<desc id="subtitle">${escaped(chart.subtitle)}</desc>`,
    `<style>${styleSheet(chart.series)}</style>`,
    `<rect class="page" width="${width}" height="${height}"/>`,
    text(plot.left, 32, 'title', shortenEnd(chart.title, 90)),
    text(plot.left, 50, 'quiet', shortenEnd(chart.subtitle, 130)),
    ...(chart.remark === undefined ? [] : [text(plot.left, 67, '', shortenEnd(chart.remark, 140))]),
    ...verticalAxis(top, y, chart.yLabel),
    ...horizontalAxis(turns, x, chart.xLabel),
    `<clipPath id="plot"><rect x="${plot.left - 6}" y="${plot.top - 6}" width="${plot.width + 12}" height="${plot.height + 12}"/></clipPath>`,
    ...ruleLines(chart, top, y, styleOf),
    '<g clip-path="url(#plot)">',
    // The reference is drawn below the others.
    ...[...chart.series]
      .sort((a, b) => Number(b.reference) - Number(a.reference))
      .flatMap((one) => seriesLines(one, styleOf(one), x, y, turns)),
    '</g>',
    ...chart.series.flatMap((one, index) => legendEntry(one, styleOf(one), index, legendTop)),
    '</svg>',
  ];
  return `${lines.join('\n')}\n`;
}

/** The scale covers every series and rule, and at most a quarter more of the reference. */
function largestShown({ series, rules }: Chart): number {
  const largest = (all: readonly ChartSeries[]) =>
    all.reduce((most, { points }) => points.reduce((so, { size }) => Math.max(so, size ?? 0), most), 0);
  const others = Math.max(
    largest(series.filter(({ reference }) => !reference)),
    ...rules.map(({ size }) => size),
    ...series.map(({ rule }) => rule ?? 0),
  );
  const reference = largest(series.filter((one) => one.reference));
  return Math.max(1, others > 0 ? Math.min(Math.max(reference, others), others * 1.25) : reference);
}

function verticalAxis(top: number, y: (size: number) => number, label: string): string[] {
  const ticks = Array.from({ length: 6 }, (_, index) => (top / 5) * index);
  return [
    ...ticks.flatMap((size) => [
      line('grid', plot.left, y(size), plot.left + plot.width, y(size)),
      text(plot.left - 8, y(size) + 4, 'quiet end', roundedCount(size)),
    ]),
    `<text class="quiet middle" transform="translate(16 ${plot.top + plot.height / 2}) rotate(-90)">${escaped(label)}</text>`,
  ];
}

function horizontalAxis(turns: number, x: (turn: number) => number, label: string): string[] {
  const bottom = plot.top + plot.height;
  const step = Math.max(1, niceCeiling(turns / 10));
  const ticks = [1, ...Array.from({ length: Math.floor(turns / step) }, (_, index) => (index + 1) * step)];
  return [
    line('axis', plot.left, bottom, plot.left + plot.width, bottom),
    ...[...new Set(ticks)]
      .filter((turn) => turn === 1 || x(turn) - x(1) > 24)
      .map((turn) => text(x(turn), bottom + 18, 'quiet middle', roundedCount(turn))),
    text(plot.left + plot.width / 2, bottom + 40, 'quiet middle', label),
  ];
}

/** Draws rules with labels across the plot; the rules of a series have its colour. Labels do not overlap. */
function ruleLines(
  { series, rules }: Chart,
  top: number,
  y: (size: number) => number,
  styleOf: (one: ChartSeries) => string,
): string[] {
  const right = plot.left + plot.width;
  const own = series.flatMap((one) =>
    one.rule !== null && one.rule <= top
      ? [line(`own ${styleOf(one)}`, plot.left, y(one.rule), right, y(one.rule))]
      : [],
  );
  let lowest = -Infinity;
  const shared = [...rules]
    .filter(({ size }) => size <= top)
    .sort((a, b) => b.size - a.size)
    .flatMap(({ size, label }) => {
      const at = Math.max(y(size) - 6, lowest + 14);
      lowest = at;
      return [line('rule', plot.left, y(size), right, y(size)), text(right - 4, at, 'quiet end', label)];
    });
  return [...own, ...shared];
}

function seriesLines(
  { points, marks }: ChartSeries,
  style: string,
  x: (turn: number) => number,
  y: (size: number) => number,
  turns: number,
): string[] {
  let drawn = '';
  let open = false;
  for (const { turn, size } of thinned(points, turns)) {
    if (size === null) {
      open = false;
      continue;
    }
    drawn += `${open ? 'L' : 'M'}${rounded(x(turn))} ${rounded(y(size))}`;
    open = true;
  }
  const radius = marks.length > 60 ? 2 : 3.5;
  return [
    `<path class="${style}" d="${drawn}"/>`,
    ...thinned(marks, turns).flatMap(({ turn, size }) =>
      size === null
        ? []
        : [
            `<circle class="mark m-${style}" cx="${rounded(x(turn))}" cy="${rounded(y(size))}" r="${radius}"/>`,
          ],
    ),
  ];
}

/**
 * Keeps the first, smallest, largest and last point of every step of the plot, so that no peak is lost. @internal A test counts
 * the remaining points.
 */
export function thinned(points: readonly ChartPoint[], turns: number): ChartPoint[] {
  if (points.length <= steps * 4) return [...points];
  const kept: ChartPoint[] = [];
  let from = 0;
  const stepOf = ({ turn }: ChartPoint) => Math.floor(((turn - 1) * steps) / turns);
  for (let to = 1; to <= points.length; to++) {
    const next = points[to];
    if (next && stepOf(next) === stepOf(points[from]!)) continue;
    kept.push(...extremes(points.slice(from, to)));
    from = to;
  }
  return kept;
}

function extremes(points: readonly ChartPoint[]): ChartPoint[] {
  let [least, most, gap] = [0, 0, -1];
  for (const [index, { size }] of points.entries()) {
    if (size === null) gap = index;
    else {
      if (size < (points[least]!.size ?? Infinity)) least = index;
      if (size > (points[most]!.size ?? -Infinity)) most = index;
    }
  }
  const kept = new Set([0, least, most, points.length - 1, ...(gap < 0 ? [] : [gap])]);
  return points.filter((_, index) => kept.has(index));
}

function legendEntry(
  { name, note, marks }: ChartSeries,
  style: string,
  index: number,
  top: number,
): string[] {
  const left = plot.left + (index % 2) * (plot.width / 2);
  const at = top + Math.floor(index / 2) * legendRow;
  return [
    `<path class="${style}" d="M${left} ${at - 4}h28"/>`,
    ...(marks.length > 0
      ? [`<circle class="mark m-${style}" cx="${left + 14}" cy="${at - 4}" r="3.5"/>`]
      : []),
    `<text x="${left + 38}" y="${at}">${escaped(shortenEnd(name, 24))} <tspan class="quiet">${escaped(shortenEnd(note, 46))}</tspan></text>`,
  ];
}
