import type { WriteStream } from 'node:tty';
import { columnsOfTerminal, printable } from './width.js';

/** Where progress goes: lines that stay, and on a terminal one last line that is redrawn. */
export class Screen {
  private drawn = false;

  constructor(private readonly stream: NodeJS.WritableStream) {}

  get isTerminal(): boolean {
    return (this.stream as Partial<WriteStream>).isTTY === true;
  }

  /** Width of the terminal; Infinity where there is none. */
  get columns(): number {
    return this.isTerminal ? (columnsOfTerminal(this.stream as Partial<WriteStream>) ?? 80) : Infinity;
  }

  line(text = ''): void {
    this.clear();
    this.stream.write(`${printable(text)}\n`);
  }

  /** Redraws the last line; says nothing where there is no terminal. */
  redraw(line: string): void {
    if (!this.isTerminal) return;
    const text = printable(line);
    this.clear();
    this.stream.write(text.length < this.columns ? text : `${text.slice(0, this.columns - 2)}…`);
    this.drawn = true;
  }

  private clear(): void {
    if (!this.drawn) return;
    this.stream.write('\r\u001B[2K');
    this.drawn = false;
  }
}
