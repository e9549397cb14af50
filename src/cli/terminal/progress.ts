import type { WriteStream } from 'node:tty';
import cliProgress from 'cli-progress';
import { count, span } from './numbers.js';
import { columnsOfTerminal } from './style.js';
import { printable, shortenEnd, shortenMiddle, widthOf } from './table.js';

interface ProgressOptions {
  /** The counted unit: `messages`. */
  unit: string;
  /** @default process.stderr */
  stream?: NodeJS.WriteStream;
  /** Milliseconds between lines without a terminal. @default 5,000 */
  lineEveryMs?: number;
}

/** Milliseconds of recent work from which the rate is computed, so that it shows the current speed. */
const window = 20_000;

/**
 * Shows the progress of long work: on a terminal a bar with rate and remaining time, elsewhere a plain line every few seconds.
 * Always on stderr, so that the result can be piped.
 */
export class Progress {
  private readonly bar: cliProgress.SingleBar | null;
  private readonly stream: NodeJS.WriteStream;
  private readonly samples: { at: number; done: number }[] = [];
  private readonly started = Date.now();
  private lastLine = this.started;
  private total = 0;
  private done = 0;
  private note = '';

  constructor(private readonly options: ProgressOptions) {
    this.stream = options.stream ?? process.stderr;
    const stream = this.stream;
    this.bar = stream.isTTY
      ? new cliProgress.SingleBar({
          stream,
          format: () => this.line(columnsOfTerminal(stream) ?? 80),
          fps: 5,
          hideCursor: true,
          clearOnComplete: true,
          linewrap: true,
          gracefulExit: false,
        })
      : null;
  }

  /** `total` 0 means unknown. */
  update(done: number, total: number, note = ''): void {
    const now = Date.now();
    Object.assign(this, { done, total, note });
    const last = this.samples.at(-1);
    if (last === undefined || now - last.at > 500) this.samples.push({ at: now, done });
    while (this.samples.length > 2 && now - (this.samples[0]?.at ?? now) > window) this.samples.shift();
    if (this.bar !== null) {
      if (!this.bar.isActive) this.bar.start(Math.max(1, total), done);
      this.bar.setTotal(Math.max(1, total));
      this.bar.update(done);
    } else if (now - this.lastLine >= (this.options.lineEveryMs ?? 5_000)) {
      this.lastLine = now;
      this.stream.write(`${this.line(Infinity)}\n`);
    }
  }

  /** Removes the bar before the result is printed. */
  stop(): void {
    if (this.bar?.isActive) this.bar.stop();
  }

  /** Prints a line above the bar. */
  say(text: string): void {
    this.stop();
    this.stream.write(`${printable(text)}\n`);
  }

  private line(columns: number): string {
    const { done, total } = this;
    const share = total > 0 ? Math.min(1, done / total) : 0;
    const rate = this.rate();
    const left = rate > 0 && total > done ? `${span(((total - done) / rate) * 1_000)} left` : '';
    const parts = [
      total > 0 ? `${Math.floor(share * 100)} %` : '',
      `${count(done)}${total > 0 ? ` of ${count(total)}` : ''} ${this.options.unit}`,
      rate === 0 ? '' : `${rate >= 10 ? count(Math.round(rate)) : rate.toFixed(1)}/s`,
      left,
    ].filter(Boolean);
    const facts = parts.join(' · ');
    if (columns === Infinity) return [facts, printable(this.note)].filter(Boolean).join(' · ');
    const bar = Math.max(0, Math.min(24, columns - widthOf(facts) - 4));
    const filled = Math.round(share * bar);
    const drawn = bar < 8 ? facts : `${'█'.repeat(filled)}${'·'.repeat(bar - filled)}  ${facts}`;
    const room = columns - widthOf(drawn) - 5;
    const note = this.note !== '' && room >= 12 ? ` · ${shortenMiddle(printable(this.note), room)}` : '';
    return shortenEnd(`${drawn}${note}`, columns - 1);
  }

  /** Units per second over the recent window. */
  private rate(): number {
    const first = this.samples[0];
    const elapsed = Date.now() - (first?.at ?? this.started);
    if (first === undefined || elapsed < 200) return 0;
    return ((this.done - first.done) / elapsed) * 1_000;
  }
}

/** Prints progress: permanent lines and, on a terminal, a last line that is redrawn. */
export class Screen {
  private drawn = false;

  constructor(private readonly stream: NodeJS.WritableStream) {}

  get isTerminal(): boolean {
    return (this.stream as Partial<WriteStream>).isTTY === true;
  }

  /** Width of the terminal, or Infinity without one. */
  get columns(): number {
    return this.isTerminal ? (columnsOfTerminal(this.stream as Partial<WriteStream>) ?? 80) : Infinity;
  }

  line(text = ''): void {
    this.clear();
    this.stream.write(`${printable(text)}\n`);
  }

  /** Redraws the last line; prints nothing without a terminal. */
  redraw(line: string): void {
    if (!this.isTerminal) return;
    const text = printable(line);
    this.clear();
    this.stream.write(shortenEnd(text, this.columns - 1));
    this.drawn = true;
  }

  private clear(): void {
    if (!this.drawn) return;
    this.stream.write('\r\u001B[2K');
    this.drawn = false;
  }
}
