import { PalimpsestError } from '../../errors.js';

export interface ErrorShape {
  type: string;
  message: string;
  path?: string;
}

/** A failure as people read it: what, where, and the next step. */
export function errorLines(error: unknown): string[] {
  const { type, message, path } = errorShape(error);
  const hint = error instanceof PalimpsestError ? error.hint : undefined;
  const where = path !== undefined && !message.includes(path) ? ` (${path})` : '';
  return [`${type}: ${message}${where}`, ...(hint === undefined ? [] : [`  ${hint}`])];
}

export const errorJson = (session: string, error: unknown): string =>
  JSON.stringify({ session, error: errorShape(error) });

/** What `--json` prints in place of a result, or after the part of it that was there. */
export function failureJson(error: unknown): string {
  const hint = error instanceof PalimpsestError ? error.hint : undefined;
  return JSON.stringify({ error: { ...errorShape(error), ...(hint === undefined ? {} : { hint }) } });
}

/** A failure as scripts read it. What is no `PalimpsestError` is a defect of this program: type `Internal`. */
function errorShape(error: unknown): ErrorShape {
  if (!(error instanceof PalimpsestError)) {
    return { type: 'Internal', message: error instanceof Error ? error.message : String(error) };
  }
  const { type, message, path } = error;
  return path === undefined ? { type, message } : { type, message, path };
}
