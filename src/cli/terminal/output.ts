import { once } from 'node:events';
import { type Column, columnsOfTerminal, layout, padded, printable, wrapped } from './table.js';

/** Colours of the terminal, where there is one and nobody has said no to them. */
export interface Style {
  bold: (text: string) => string;
  dim: (text: string) => string;
  red: (text: string) => string;
  yellow: (text: string) => string;
  green: (text: string) => string;
  cyan: (text: string) => string;
}

const codes = {
  bold: [1, 22],
  dim: [2, 22],
  red: [31, 39],
  yellow: [33, 39],
  green: [32, 39],
  cyan: [36, 39],
} as const;

export function styleFor(coloured: boolean): Style {
  const paint = (name: keyof typeof codes) => (text: string) =>
    coloured && text !== '' ? `\u001B[${codes[name][0]}m${text}\u001B[${codes[name][1]}m` : text;
  return {
    bold: paint('bold'),
    dim: paint('dim'),
    red: paint('red'),
    yellow: paint('yellow'),
    green: paint('green'),
    cyan: paint('cyan'),
  };
}

/** `--no-color`, and NO_COLOR of whatever value (https://no-color.org), go before the terminal. */
export function wantsColour(stream: { isTTY?: boolean }, allowed: boolean, env = process.env): boolean {
  return allowed && !env.NO_COLOR && env.TERM !== 'dumb' && stream.isTTY === true;
}

interface OutputSettings {
  json: boolean;
  /** False after `--no-color`. */
  color: boolean;
}

/**
 * What a command prints. Results go to stdout: for people as lines, with `--json` as JSON and nothing else. Progress,
 * notes and failures go to stderr.
 */
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
