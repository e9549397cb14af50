/** Prints originals as text, or with `--json` one object per line. */
import type { ChatMessage, LoggedMessage } from '../../conversation/message.js';
import type {
  ArchivePart,
  FollowingMessage,
  SearchHit,
  SearchResult,
  ToolResponse,
} from '../../contract/archive.js';
import type { Output } from '../terminal/output.js';
import { count, plural } from '../terminal/numbers.js';
import type { Run } from '../command/run.js';
import { type Column, printable, shortenAround } from '../terminal/table.js';

/** Prints message by message and waits for a slow reader, so that memory does not grow with the length. */
export async function showMessages(
  { out, json }: Run,
  messages: AsyncIterable<LoggedMessage> | Iterable<LoggedMessage>,
): Promise<void> {
  for await (const logged of messages) {
    if (json) await out.value(logged);
    else {
      await out.line(out.style.bold(printable(titleOf(logged))));
      await out.content(`${bodyOf(logged.message)}\n\n`);
    }
  }
}

function titleOf({ seq, message, tokens, at = '' }: LoggedMessage): string {
  const parts = [`#${seq} ${message.role}`, whoOf(message), at, `${count(tokens)} tokens`];
  return parts.filter(Boolean).join(' · ');
}

const whoOf = ({ name, tool_call_id: id }: ChatMessage): string =>
  [name, id].filter((part) => typeof part === 'string').join(' ');

function bodyOf({ content, tool_calls: calls }: ChatMessage): string {
  const text =
    typeof content === 'string'
      ? content
      : Array.isArray(content)
        ? content.map((part) => part.text ?? `[${part.type}]`).join('\n')
        : '';
  const made = Array.isArray(calls)
    ? calls.map(
        ({ id, function: called }) => `→ ${called?.name ?? 'call'} ${called?.arguments ?? ''} (${id})`,
      )
    : [];
  return [text, ...made].filter((line) => line !== '').join('\n');
}

export async function showHits(out: Output, { hits, meaning, nextOffset }: SearchResult): Promise<void> {
  if (meaning?.failure) out.note(`some or all messages were searched by words only: ${meaning.failure}`);
  if (hits.length === 0) return out.note('Nothing was found.');
  const columns: Column<SearchHit | FollowingMessage>[] = [
    { head: 'seq', value: ({ seq }) => count(seq), align: 'right' },
    { head: 'date', value: ({ at, storedAt }) => (at ?? storedAt).slice(0, 10), dispensable: 3 },
    {
      head: 'role',
      value: ({ role, speaker }) => (speaker === null ? role : `${role} ${speaker}`),
      least: 6,
      shorten: 'end',
    },
    {
      head: 'tool',
      value: (one) => ('tool' in one ? (one.tool ?? '–') : ''),
      ...{ least: 6, shorten: 'end', dispensable: 2 },
    },
    {
      head: 'offset',
      value: (one) => ('offset' in one ? count(one.offset) : ''),
      ...{ align: 'right', dispensable: 1 },
    },
    {
      head: 'match',
      value: (one) => ('snippet' in one ? one.snippet : one.text),
      least: 40,
      shorten: (text, width) => shortenAround(text, width, Math.max(0, text.indexOf('«'))),
    },
  ];
  await out.table(
    columns,
    hits.flatMap((hit) => [hit, ...hit.following]),
  );
  if (nextOffset !== null) out.note(`more follow: --offset ${nextOffset}`);
}

export async function showResponse(out: Output, response: ToolResponse): Promise<void> {
  const { seq, role, tool, part, content, offset, totalCharacters, nextOffset, occurrences } = response;
  const who = tool === null ? role : `${role} ${tool}`;
  const where = part === null ? 'in the tail' : `in archive part ${part}`;
  out.note(
    `message ${seq} (${who}), ${where}, characters ${count(offset)}–${count(offset + content.length)} of ${count(totalCharacters)}`,
  );
  if (occurrences.length > 1)
    out.note(
      `the call id occurs ${occurrences.length} times; choose a message with --seq: ${occurrences.map((o) => o.seq).join(', ')}`,
    );
  await out.content(content);
  if (process.stdout.isTTY) await out.line();
  if (nextOffset !== null) out.note(`the next page: --offset ${nextOffset}`);
}

export async function showParts(out: Output, parts: readonly ArchivePart[]): Promise<void> {
  if (parts.length === 0) return out.note('Nothing has been archived yet.');
  const columns: Column<ArchivePart>[] = [
    { head: 'part', value: ({ part }) => String(part), align: 'right' },
    { head: 'gen', value: ({ generation }) => String(generation), align: 'right' },
    { head: 'from', value: ({ fromSeq }) => count(fromSeq), align: 'right' },
    { head: 'through', value: ({ throughSeq }) => count(throughSeq), align: 'right' },
    { head: 'messages', value: ({ messages }) => count(messages), align: 'right' },
    { head: 'tokens', value: ({ tokens }) => count(tokens), align: 'right' },
    { head: 'bytes', value: ({ bytes }) => count(bytes), align: 'right', dispensable: 1 },
    { head: 'sha256', value: ({ sha256 }) => sha256, least: 13, shorten: 'middle' },
  ];
  await out.table(columns, parts);
  const messages = parts.reduce((sum, part) => sum + part.messages, 0);
  out.note(`${plural(parts.length, 'part')}, ${plural(messages, 'message')}`);
}
