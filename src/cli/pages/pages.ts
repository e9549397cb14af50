/** Prints lists page by page, so that memory does not grow with their length. */
import type { Run } from '../command/run.js';
import { layout, type Column, type Layout } from '../terminal/table.js';

/** Rows per request. */
const pageSize = 1_000;

export interface Page<Row> {
  rows: readonly Row[];
  /** Start of the next page; null at the end. */
  next: string | null;
}

/**
 * Prints at most `limit` rows, as a table whose widths the first page determines, or as one JSON object per line. Returns the
 * number of rows.
 */
export async function showPages<Row>(
  { out, json }: Run,
  columns: readonly Column<Row>[],
  { after, limit }: { after?: string; limit: number },
  read: (after: string | undefined, limit: number) => Promise<Page<Row>>,
): Promise<number> {
  let shown = 0;
  let table: Layout<Row> | undefined;
  for (let from = after; ;) {
    const { rows, next } = await read(from, Math.min(pageSize, limit - shown));
    if (!json && shown === 0 && rows.length > 0) {
      table = layout(columns, rows, out.width);
      await out.line(out.style.dim(table.head));
    }
    for (const row of rows) await (table ? out.line(table.line(row)) : out.value(row));
    shown += rows.length;
    if (next === null) return shown;
    if (shown >= limit) {
      out.note(`more follow: --after ${JSON.stringify(next)}, or --all`);
      return shown;
    }
    from = next;
  }
}
