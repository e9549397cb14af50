import pg from 'pg';
import { vi } from 'vitest';

/** The statements of one act, by their first word. The setting that each new connection begins with is left out. */
export async function statements(act: () => Promise<unknown>): Promise<string[]> {
  const spy = vi.spyOn(pg.Client.prototype, 'query');
  try {
    await act();
    const texts = spy.mock.calls.map(([query]: unknown[]) =>
      typeof query === 'string' ? query : (query as { text: string }).text,
    );
    return texts
      .filter((text) => !text.startsWith('set tcp_user_timeout'))
      .map((text) => /\w+/.exec(text)?.[0] ?? '');
  } finally {
    spy.mockRestore();
  }
}
