export interface ChartPoint {
  /** From 1. */
  turn: number;
  /** null: nothing to show, the line is interrupted. */
  size: number | null;
}

export interface ChartSeries {
  name: string;
  /** Behind the name in the legend. */
  note: string;
  /** Ascending by turn; several of one turn are drawn one above the other. */
  points: readonly ChartPoint[];
  /** Turns to be marked on the line. */
  marks: readonly ChartPoint[];
  /** A size to be ruled in the colour of the series; null: none. */
  rule: number | null;
  /** What the others are compared with: drawn in grey, and the scale need not hold its largest sizes. */
  reference: boolean;
}

export interface Chart {
  title: string;
  subtitle: string;
  /** Something that must not be overlooked, on a line of its own. */
  remark?: string;
  xLabel: string;
  yLabel: string;
  series: readonly ChartSeries[];
  /** Sizes that hold for all series, such as a window. */
  rules: readonly { size: number; label: string }[];
}
