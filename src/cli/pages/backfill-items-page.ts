import type { BackfillItem, BackfillItemRequest } from '../../contract/backfills.js';
import { count, money, span } from '../terminal/numbers.js';
import { showPages } from './pages.js';
import type { Run } from '../command/run.js';
import type { Style } from '../terminal/style.js';
import type { Column } from '../terminal/table.js';

export async function listItems(
  run: Run,
  { after, ...request }: Omit<BackfillItemRequest, 'limit'>,
  limit: number,
): Promise<void> {
  const client = await run.client();
  const shown = await showPages(run, columns(run.out.style), { after, limit }, async (from, most) => {
    const { items, next } = await client.backfillItems({ ...request, after: from, limit: most });
    return { rows: items, next };
  });
  if (shown === 0)
    run.out.note(request.state === undefined ? 'No session.' : `No session is ${request.state}.`);
}

function columns(style: Style): Column<BackfillItem>[] {
  const number = (value: number | null) => (value === null ? '–' : count(value));
  return [
    { head: 'session', value: ({ session }) => session, least: 26, shorten: 'middle' },
    {
      head: 'state',
      value: ({ state }) => state,
      paint: (text, { state }) => (state === 'failed' ? style.red(text) : text),
    },
    { head: 'tries', value: ({ attempts }) => String(attempts), align: 'right', dispensable: 3 },
    { head: 'gen', value: ({ generation }) => number(generation), align: 'right', dispensable: 2 },
    { head: 'before', value: ({ tokensBefore }) => number(tokensBefore), align: 'right' },
    { head: 'after', value: ({ tokensAfter }) => number(tokensAfter), align: 'right' },
    { head: 'cost', value: ({ cost }) => money(cost), align: 'right', dispensable: 4 },
    { head: 'took', value: tookOf, align: 'right', dispensable: 1 },
    {
      head: 'failure',
      value: ({ error }) => (error === null ? '' : `${error.type}: ${error.message}`),
      least: 12,
      shorten: 'end',
    },
  ];
}

const tookOf = ({ startedAt, endedAt }: BackfillItem): string =>
  startedAt === null || endedAt === null ? '–' : span(Date.parse(endedAt) - Date.parse(startedAt));
