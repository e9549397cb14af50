import { once } from 'node:events';
import { columnsOfTerminal, styleFor, wantsColour, type Style } from './style.js';
import { type Column, layout, padded, printable, wrapped } from './table.js';

interface OutputSettings {
  json: boolean;
  /** False after `--no-color`. */
  color: boolean;
}

/**
 * The output of a command. Results go to stdout: as lines for people, or with `--json` as JSON only. Progress, notes and
 * failures go to stderr.
 */
export class Output {
  readonly json: boolean;
  readonly style: Style;

  constructor({ json, color }: OutputSettings) {
    this.json = json;
    this.style = styleFor(wantsColour(process.stdout, color));
  }

  /** Width of the terminal, else COLUMNS, else unlimited, so that a pipe receives complete ids. */
  get width(): number {
    const given = Number(process.env.COLUMNS);
    const fallback = Number.isInteger(given) && given > 0 ? given : Infinity;
    return columnsOfTerminal(process.stdout) ?? fallback;
  }

  /** Prints one JSON document, or one line of several. Waits for a slow reader. */
  value(document: unknown): Promise<void> {
    return this.write(`${JSON.stringify(document ?? null)}\n`);
  }

  line(text = ''): Promise<void> {
    return this.write(`${text}\n`);
  }

  /** Prints lines, wrapped to the width. */
  async paragraph(text: string, paint = (line: string) => line): Promise<void> {
    for (const line of wrapped(printable(text), this.width)) await this.line(paint(line));
  }

  /** Prints stored text: unchanged to a pipe or file; for a terminal, control characters are removed. */
  content(text: string): Promise<void> {
    return this.write(process.stdout.isTTY ? printable(text.replaceAll('\t', '    ')) : text);
  }

  write(text: string): Promise<void> {
    return writeTo(process.stdout, text);
  }

  /** Prints a note for people on stderr. */
  note(text: string): void {
    process.stderr.write(`${printable(text)}\n`);
  }

  async table<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): Promise<void> {
    const { head, line } = layout(columns, rows, this.width);
    await this.line(this.style.dim(head));
    for (const row of rows) await this.line(line(row));
  }

  /** Prints names on the left and values on the right, wrapped to the width. */
  async facts(facts: readonly (Fact | null)[]): Promise<void> {
    const shown = facts.filter((fact) => fact !== null);
    const names = Math.max(...shown.map(([name]) => name.length)) + 2;
    for (const [name, value, paint = (text: string) => text] of shown) {
      const lines = wrapped(printable(value), Math.max(10, this.width - names));
      for (const [index, line] of lines.entries())
        await this.line(`${this.style.dim(padded(index === 0 ? name : '', names))}${paint(line)}`.trimEnd());
    }
  }
}

export type Fact = readonly [name: string, value: string, paint?: (text: string) => string];

/** Resolves once the stream accepts more. */
async function writeTo(stream: NodeJS.WriteStream, text: string): Promise<void> {
  if (!stream.write(text)) await once(stream, 'drain');
}
