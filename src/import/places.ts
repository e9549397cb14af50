/** Where in its file a session is wrong: the line, and the path of the field within that line or the document. */
import { PalimpsestError } from '../errors.js';

/** Path of an item, and of a field in it. */
const ofItem = /^(?:messages|lines)\[(\d+)\]\.?(.*)$/s;

/**
 * A failure of a session whose items stand on these lines. `details.item`, or the path, tells which of them it is. Where
 * each line is an item, the path is that within the line.
 */
export function atItem(
  error: PalimpsestError,
  lines: readonly number[],
  isEachLine: boolean,
): { error: PalimpsestError; line: number } {
  const { path = '', details } = error;
  const [, number, rest = ''] = ofItem.exec(path) ?? [];
  const item = typeof details?.item === 'number' ? details.item : number === undefined ? -1 : Number(number);
  const line = lines[item];
  if (line === undefined || /^line \d/i.test(error.message)) return { error, line: lines[0] ?? 1 };
  const isWhole = rest === '' || !isEachLine;
  const message = isWhole ? error.message : error.message.replaceAll(path, rest);
  return { error: atLine(withPath(error, message, isWhole ? path : rest), line), line };
}

export function atLine(error: PalimpsestError, line: number): PalimpsestError {
  if (/^line \d/i.test(error.message)) return error;
  return withPath(error, `Line ${line}: ${error.message}`, error.path);
}

function withPath(error: PalimpsestError, message: string, path: string | undefined): PalimpsestError {
  const { type, hint, details, cause } = error;
  return new PalimpsestError(type, message, { path, hint, details, cause });
}

/** The same with a next step, where what found it knows none. */
export function withHint(error: PalimpsestError): PalimpsestError {
  if (error.hint !== undefined) return error;
  const { type, message, path, details, cause } = error;
  const hint = 'Correct it there, or leave this session out; the others are read.';
  return new PalimpsestError(type, message, { path, hint, details, cause });
}

/** The same with the name of its file in front, for readers of several files. */
export function inFile(error: PalimpsestError, file: string): PalimpsestError {
  if (error.message.includes(file)) return error;
  return withPath(error, `${file}: ${error.message}`, error.path);
}
