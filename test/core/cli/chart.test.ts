/**
 * People read charts on light and dark pages. A chart must be well-formed for any session id, must not lose a peak if thousands
 * of turns share a pixel, and must load nothing else.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type Chart,
  type ChartPoint,
  type ChartSeries,
  chartSvg,
  thinned,
} from '../../../src/cli/chart/chart.js';

const saw = (turns: number, top: number): ChartPoint[] =>
  Array.from({ length: turns }, (_, index) => ({ turn: index + 1, size: ((index * 37) % top) + 1 }));

const series = (
  name: string,
  points: readonly ChartPoint[],
  more: Partial<ChartSeries> = {},
): ChartSeries => ({
  name,
  note: '2 compactions',
  points,
  marks: [],
  rule: null,
  reference: false,
  ...more,
});

const chart = (given: Partial<Chart>): Chart => ({
  title: 'Context of a session',
  subtitle: '12 turns',
  xLabel: 'turn',
  yLabel: 'tokens',
  series: [series('default', saw(12, 500))],
  rules: [],
  ...given,
});

/** Every tag closed in order, no stray `<` or `&`, no character that XML forbids. */
function wellFormed(svg: string): void {
  const open: string[] = [];
  const rest = svg.replaceAll(
    /<(\/?)([a-zA-Z]+)((?:\s+[\w:-]+="[^"<]*")*)\s*(\/?)>/g,
    (_, closing, name, _attributes, alone) => {
      if (closing) expect(open.pop()).toBe(name);
      else if (!alone) open.push(String(name));
      return '';
    },
  );
  expect(open).toEqual([]);
  expect(rest).not.toMatch(/[<>]/);
  expect(rest).not.toMatch(/&(?!amp;|lt;|gt;|quot;)/);
  expect(svg).not.toMatch(/[\u0000-\u0008\u000B\u000C\u000E-\u001F\uFFFE\uFFFF]|\p{Cs}/u);
}

/** Points of the path with this class. */
function drawn(svg: string, style: string): number[] {
  const path = new RegExp(`<path class="${style}" d="([^"]*)"/>\\n`).exec(svg)?.[1] ?? '';
  return [...path.matchAll(/[ML][\d.-]+ ([\d.-]+)/g)].map(([, y]) => Number(y));
}

describe('a chart', () => {
  test('is well-formed for any title, name and label', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'binary' }),
        fc.string({ unit: 'binary' }),
        fc.array(fc.nat(200_000), { maxLength: 30 }),
        (title, name, sizes) => {
          const points = sizes.map((size, index) => ({
            turn: index + 1,
            size: size % 7 === 0 ? null : size,
          }));
          wellFormed(
            chartSvg(
              chart({
                title,
                series: [
                  series(name, points, { marks: points, rule: 100 }),
                  series('no compaction', points, { reference: true }),
                ],
                rules: [{ size: 128_000, label: title }],
              }),
            ),
          );
        },
      ),
    );
    wellFormed(chartSvg(chart({ title: '</text><script>alert(1)</script>\u0000\uD800 & "x"' })));
  });

  test('shows title, axes, rules and one legend entry for each series', () => {
    const svg = chartSvg(
      chart({
        series: [series('default', saw(9, 90)), series('<small>', saw(9, 50))],
        rules: [{ size: 100, label: 'window 100' }],
      }),
    );
    for (const shown of [
      'Context of a session',
      '12 turns',
      '>turn<',
      '>tokens<',
      'window 100',
      '>default ',
      '&lt;small&gt;',
    ])
      expect(svg).toContain(shown);
    expect(svg).toContain('prefers-color-scheme:dark');
    expect(svg).not.toMatch(/https?:(?!\/\/www\.w3\.org\/2000\/svg)|url\((?!#)|@import|<script|href/);
  });

  test('a line is interrupted where a context did not fit', () => {
    const points = [10, 20, null, 30].map((size, index) => ({ turn: index + 1, size }));
    const svg = chartSvg(chart({ series: [series('default', points)] }));
    expect(/class="s0" d="([^"]*)"/.exec(svg)?.[1]?.match(/M/g)).toHaveLength(2);
  });

  test('a very high comparison line does not flatten the others', () => {
    const svg = chartSvg(
      chart({
        series: [
          series('default', saw(20, 1_000)),
          series('none', [{ turn: 20, size: 1_000_000 }], { reference: true }),
        ],
      }),
    );
    const heights = drawn(svg, 's0');
    expect(Math.max(...heights) - Math.min(...heights)).toBeGreaterThan(200);
  });

  test('up to twelve lines differ in colour or dashes', () => {
    const svg = chartSvg(
      chart({ series: Array.from({ length: 12 }, (_, index) => series(`p${index}`, saw(5, 9))) }),
    );
    const colours = [...svg.matchAll(/\.s\d+\{stroke:(#\w+)\}/g)].map(([, colour]) => colour);
    expect(new Set(colours.slice(0, 12)).size).toBe(12);
  });
});

describe('thousands of turns', () => {
  test('are reduced to the visible points', () => {
    const svg = chartSvg(chart({ series: [series('default', saw(50_000, 90_000))] }));
    expect(drawn(svg, 's0').length).toBeLessThan(2_200);
    expect(svg.length).toBeLessThan(60_000);
  });

  test('keep every peak, every trough, the ends, the gaps and their order', () => {
    const sizes = fc.array(fc.option(fc.nat(100_000), { freq: 50 }), { minLength: 2_000, maxLength: 6_000 });
    fc.assert(
      fc.property(sizes, (given) => {
        const points = given.map((size, index) => ({ turn: index + 1, size }));
        const kept = thinned(points, points.length);
        const known = (all: readonly ChartPoint[]) => all.flatMap(({ size }) => size ?? []);
        expect(known(kept).reduce((most, size) => Math.max(most, size), -1)).toBe(
          known(points).reduce((most, size) => Math.max(most, size), -1),
        );
        expect(known(kept).reduce((least, size) => Math.min(least, size), Infinity)).toBe(
          known(points).reduce((least, size) => Math.min(least, size), Infinity),
        );
        expect([kept[0], kept.at(-1)]).toEqual([points[0], points.at(-1)]);
        expect(kept.some(({ size }) => size === null)).toBe(points.some(({ size }) => size === null));
        expect(kept.every(({ turn }, index) => index === 0 || turn > kept[index - 1]!.turn)).toBe(true);
      }),
      { numRuns: 30 },
    );
  });
});
