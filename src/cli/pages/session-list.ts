import type { ListRequest, SessionSummary } from '../../contract/sessions.js';
import { ago, count } from '../terminal/numbers.js';
import { showPages } from './pages.js';
import type { Run } from '../command/run.js';
import type { Style } from '../terminal/style.js';
import type { Column } from '../terminal/table.js';

export async function listSessions(
  run: Run,
  { after, ...request }: Omit<ListRequest, 'limit'>,
  limit: number,
): Promise<void> {
  const client = await run.client();
  const shown = await showPages(run, columns(run.out.style), { after, limit }, async (from, most) => {
    const { sessions, next } = await client.sessions({ ...request, after: from, limit: most });
    return { rows: sessions, next };
  });
  if (shown === 0) run.out.note(request.failed ? 'No session has failed.' : 'No session.');
}

function columns(style: Style): Column<SessionSummary>[] {
  return [
    { head: 'session', value: ({ session }) => session, least: 28, shorten: 'middle' },
    { head: 'format', value: ({ format }) => format, dispensable: 5 },
    { head: 'messages', value: ({ messages }) => count(messages), align: 'right', dispensable: 3 },
    { head: 'turns', value: ({ turns }) => count(turns), align: 'right', dispensable: 4 },
    { head: 'tokens', value: ({ tokens }) => count(tokens), align: 'right' },
    { head: 'budget', value: ({ budget }) => count(budget), align: 'right', dispensable: 2 },
    {
      head: 'full',
      value: ({ tokens, budget }) => `${Math.round((100 * tokens) / Math.max(1, budget))} %`,
      align: 'right',
      paint: (text, { tokens, budget }) => (tokens > budget ? style.yellow(text) : text),
    },
    { head: 'gen', value: ({ generation }) => String(generation), align: 'right' },
    { head: 'updated', value: ({ updatedAt }) => ago(updatedAt), align: 'right', dispensable: 1 },
    {
      head: 'state',
      value: stateOf,
      least: 8,
      shorten: 'end',
      paint: (text, { lastError, exhausted }) =>
        lastError ? style.red(text) : exhausted ? style.yellow(text) : text,
    },
  ];
}

function stateOf({ lastError, exhausted, closedAt }: SessionSummary): string {
  if (lastError) return `failed ${lastError.type}`;
  if (exhausted) return 'full';
  return closedAt === null ? 'ok' : 'closed';
}
