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
