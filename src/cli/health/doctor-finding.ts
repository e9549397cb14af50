export type Level = 'ok' | 'warn' | 'fail';

/** The result of one check; `next` is the remedy. */
export interface Finding {
  check: string;
  level: Level;
  detail: string;
  next?: string;
}

export const ok = (check: string, detail: string): Finding => ({ check, level: 'ok', detail });
export const warn = (check: string, detail: string, next: string): Finding => ({
  ...{ check, level: 'warn', detail, next },
});
export const fail = (check: string, detail: string, next?: string): Finding => ({
  ...{ check, level: 'fail', detail },
  ...(next === undefined ? {} : { next }),
});

/** Returns the finding for a check that threw. */
export function failed(check: string, error: unknown): Finding {
  const detail = error instanceof Error ? error.message.split('\n')[0] : String(error);
  const hint = (error as { hint?: unknown } | null)?.hint;
  const type = (error as { type?: unknown } | null)?.type;
  return fail(
    check,
    typeof type === 'string' ? `${type}: ${detail}` : (detail ?? ''),
    typeof hint === 'string' ? hint : undefined,
  );
}
