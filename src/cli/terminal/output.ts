/**
 * What a command prints. Results go to stdout: for people as lines, with `--json` as JSON and nothing else. Progress,
 * notes and failures go to stderr.
 */
import { once } from 'node:events';
import { styleFor, wantsColour, type Style } from './style.js';
import { layout, type Column } from './table.js';
import { columnsOfTerminal, padded, printable, wrapped } from './width.js';

export interface OutputSettings {
  json: boolean;
  /** False after `--no-color`. */
  color: boolean;
}

export class Output {
  readonly json: boolean;
  readonly style: Style;

  constructor({ json, color }: OutputSettings) {
    this.json = json;
    this.style = styleFor(wantsColour(process.stdout, color));
  }

  /** Of the terminal; else COLUMNS; else without limit, so that a pipe gets whole ids. */
  get width(): number {
    const given = Number(process.env.COLUMNS);
    const fallback = Number.isInteger(given) && given > 0 ? given : Infinity;
    return columnsOfTerminal(process.stdout) ?? fallback;
  }

  /** One JSON document, or one line of several. Waits for a slow reader. */
  value(document: unknown): Promise<void> {
    return this.write(`${JSON.stringify(document ?? null)}\n`);
  }

  line(text = ''): Promise<void> {
    return this.write(`${text}\n`);
  }

  /** Lines broken where they would not fit. */
  async paragraph(text: string, paint = (line: string) => line): Promise<void> {
    for (const line of wrapped(printable(text), this.width)) await this.line(paint(line));
  }

  /** Stored text: exact into a pipe or file; a terminal is not steered by it. */
  content(text: string): Promise<void> {
    return this.write(process.stdout.isTTY ? printable(text.replaceAll('\t', '    ')) : text);
  }

  write(text: string): Promise<void> {
    return writeTo(process.stdout, text);
  }

  /** For people beside the result. */
  note(text: string): void {
    process.stderr.write(`${printable(text)}\n`);
  }

  async table<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): Promise<void> {
    const { head, line } = layout(columns, rows, this.width);
    await this.line(this.style.dim(head));
    for (const row of rows) await this.line(line(row));
  }

  /** Names at the left, values at the right, broken where they would not fit. */
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

/** Resolves once the stream takes more. */
async function writeTo(stream: NodeJS.WriteStream, text: string): Promise<void> {
  if (!stream.write(text)) await once(stream, 'drain');
}
