import type { WriteStream } from 'node:tty';
import { styleText } from 'node:util';

const styles = ['bold', 'dim', 'red', 'yellow', 'green', 'cyan'] as const;

export type Style = Record<(typeof styles)[number], (text: string) => string>;

export function styleFor(coloured: boolean): Style {
  const paint = (name: (typeof styles)[number]) => (text: string) =>
    coloured ? styleText(name, text, { validateStream: false }) : text;
  return Object.fromEntries(styles.map((name) => [name, paint(name)])) as Style;
}

/** Whether to colour the output: only on terminals with colours, and not if NO_COLOR is set (https://no-color.org). */
export const wantsColour = (stream: Partial<WriteStream>, allowed: boolean): boolean =>
  allowed && stream.hasColors?.() === true;

/** Returns the columns of a terminal, or null if the stream is not a terminal or does not know its width. */
export const columnsOfTerminal = ({
  isTTY,
  columns,
}: {
  isTTY?: boolean;
  columns?: number;
}): number | null => (isTTY === true && columns !== undefined && columns > 0 ? columns : null);
