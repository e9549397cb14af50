/** The messages that a search covers: by number, role, speaker, tool and time. */
import type { SearchRequest } from '../../contract/archive.js';
import type { Role } from '../../conversation/message.js';
import { invalid } from '../../errors.js';
import { storable } from '../connection/values.js';

export interface Scope {
  fromSeq: number;
  throughSeq: number;
  role: Role | null;
  /** In lower case. */
  speaker: string | null;
  tool: string | null;
  from: Date | null;
  /** The first moment after the requested time. */
  before: Date | null;
}

/** Throws `Input.Invalid` naming the field. */
export function scopeOf(request: SearchRequest): Scope {
  const { fromSeq = 1, throughSeq = 2 ** 31 - 1, role, speaker, tool, from, through } = request;
  return {
    fromSeq,
    throughSeq,
    role: role ?? null,
    speaker: speaker === undefined ? null : storable(speaker).toLowerCase(),
    tool: tool === undefined ? null : storable(tool),
    from: from === undefined ? null : periodOf(from, 'from').begins,
    before: through === undefined ? null : periodOf(through, 'through').ends,
  };
}

/** A year, month or day in UTC (`2023`, `2023-05`, `2023-05-07`). An exact time is a period of one millisecond. */
function periodOf(text: string, path: string): { begins: Date; ends: Date } {
  const [, year, month, day] = /^(\d{4})(?:-(\d\d)(?:-(\d\d))?)?$/.exec(text.trim()) ?? [];
  if (year !== undefined) {
    const [y, m, d] = [Number(year), Number(month ?? 1) - 1, Number(day ?? 1)];
    const begins = new Date(Date.UTC(y, m, d));
    const isReal = begins.toISOString().startsWith(text.trim());
    if (isReal) {
      const ends =
        day !== undefined ? [y, m, d + 1] : month !== undefined ? [y, m + 1, 1] : ([y + 1, 0, 1] as const);
      return { begins, ends: new Date(Date.UTC(ends[0], ends[1], ends[2])) };
    }
  } else if (/^\d{4}-\d\d-\d\d[T ]\d\d/.test(text.trim())) {
    const zoned = /(?:Z|[+-]\d\d(?::?\d\d)?)$/i.test(text.trim()) ? text.trim() : `${text.trim()}Z`;
    const time = Date.parse(zoned);
    if (!Number.isNaN(time)) return { begins: new Date(time), ends: new Date(time + 1) };
  }
  throw invalid(
    `${JSON.stringify(text)} is not a date.`,
    path,
    'Give a day (2023-05-07), a month (2023-05), a year, or an ISO 8601 time.',
  );
}

/** Whether the scope has conditions other than message numbers. */
export function isNarrow({ role, speaker, tool, from, before }: Scope): boolean {
  return [role, speaker, tool, from, before].some((one) => one !== null);
}

/**
 * The conditions on rows `t` of `message_texts`, whose tenant and session are $1 and $2. `given` returns the
 * placeholder of a value.
 */
export function conditionsOf(scope: Scope, given: (value: unknown) => string): string[] {
  const { fromSeq, throughSeq, role, speaker, tool, from, before } = scope;
  // A sub-select: the planner chooses badly for a join after the tables have just grown.
  const said = `(select coalesce(m.at, m.created_at) from palimpsest.messages m
       where m.tenant_id = $1 and m.session_id = $2 and m.seq = t.seq)`;
  return [
    't.tenant_id = $1 and t.session_id = $2',
    `t.seq between ${given(fromSeq)} and ${given(throughSeq)}`,
    ...(role === null ? [] : [`t.role = ${given(role)}`]),
    ...(speaker === null ? [] : [`lower(t.speaker) = ${given(speaker)}`]),
    ...(tool === null ? [] : [`${given(tool)} = any (string_to_array(t.tool, chr(10)))`]),
    ...(from === null ? [] : [`${said} >= ${given(from)}`]),
    ...(before === null ? [] : [`${said} < ${given(before)}`]),
  ];
}
