/** `palimpsest verify` checks every original against its hash, and every context against its provider's rules. */
import { programName } from '../../runtime/program.js';
import type { PalimpsestClient } from '../../contract/client.js';
import type { ContextFormat } from '../../conversation/format-names.js';
import type { Json } from '../../conversation/message.js';
import { isFailure } from '../../errors.js';
import { contextFormatOf } from '../../formats/index.js';
import { Progress } from '../terminal/progress.js';
import { count, plural, seconds } from '../terminal/numbers.js';
import { exitCodes } from '../command/exit-codes.js';
import type { Run } from '../command/run.js';

/** Number of sessions read concurrently. */
const atOnce = 4;

/** Maximum number of findings of each kind that are listed; all findings are counted. */
const mostListed = 100;
/** Number of violations listed for one context. */
const mostViolations = 10;
const pageSize = 1_000;

interface Damage {
  session: string;
  type: string;
  message: string;
  /** Number of originals before the damaged one. */
  afterMessages: number;
}

/** A context that its provider would refuse. */
interface InvalidContext {
  session: string;
  format: ContextFormat;
  violations: string[];
}

interface Found {
  sessions: number;
  messages: number;
  /** Messages whose place a tombstone has taken. */
  erased: number;
  damaged: number;
  /** The first findings, in the order they were found. */
  damage: Damage[];
  invalid: number;
  invalidContexts: InvalidContext[];
}

interface Wanted {
  session: string;
  messages: number;
}

/**
 * Resolves to exit code 1 if anything is damaged or invalid. Memory grows with neither the number of sessions nor their length.
 */
export async function verify(run: Run, named: readonly string[]): Promise<number> {
  const client = await run.client();
  const started = Date.now();
  const found: Found = {
    ...{ sessions: 0, messages: 0, erased: 0, damaged: 0, damage: [] },
    ...{ invalid: 0, invalidContexts: [] },
  };
  const progress = new Progress({ unit: 'messages' });
  const these = await wantedOf(client, named, run.signal);
  const wanted = these.length > 0 ? these.values() : allOf(client);
  const total = await messagesOf(these.length > 0 ? these.values() : allOf(client), run.signal);
  progress.update(0, total);
  try {
    await Promise.all(
      Array.from({ length: atOnce }, async () => {
        for await (const one of wanted) {
          await check(client, one, found, run.signal, () =>
            progress.update(
              found.messages,
              Math.max(total, found.messages),
              found.damaged > 0 ? `${count(found.damaged)} damaged` : one.session,
            ),
          );
        }
      }),
    );
  } finally {
    progress.stop();
  }
  await tell(run, found, Date.now() - started);
  return found.damaged + found.invalid > 0 ? exitCodes.failed : exitCodes.done;
}

/** Only a few run concurrently, because each takes several connections. */
async function wantedOf(
  client: PalimpsestClient,
  named: readonly string[],
  signal: AbortSignal,
): Promise<Wanted[]> {
  const wanted = named.map((session): Wanted => ({ session, messages: 0 }));
  const left = wanted.values();
  const workers = Array.from({ length: atOnce }, async () => {
    for (const one of left) {
      signal.throwIfAborted();
      one.messages = (await client.status({ session: one.session })).messages;
    }
  });
  await Promise.all(workers);
  return wanted;
}

/** Several readers share this generator; it answers them one after the other. */
async function* allOf(client: PalimpsestClient): AsyncGenerator<Wanted> {
  for (let after: string | undefined; ;) {
    const page = await client.sessions({ after, limit: pageSize });
    yield* page.sessions.map(({ session, messages }) => ({ session, messages }));
    if (page.next === null) return;
    after = page.next;
  }
}

/** The number of messages to read, for the progress bar. */
async function messagesOf(
  wanted: Iterable<Wanted> | AsyncIterable<Wanted>,
  signal: AbortSignal,
): Promise<number> {
  let messages = 0;
  for await (const one of wanted) {
    signal.throwIfAborted();
    messages += one.messages;
  }
  return messages;
}

async function check(
  client: PalimpsestClient,
  { session, messages }: Wanted,
  found: Found,
  signal: AbortSignal,
  step: () => void,
): Promise<void> {
  let read = 0;
  const damaged = (type: string, message: string): void => {
    found.damaged += 1;
    if (found.damage.length < mostListed) found.damage.push({ session, type, message, afterMessages: read });
  };
  try {
    for await (const { erased } of client.replay({ session })) {
      signal.throwIfAborted();
      read += 1;
      found.messages += 1;
      if (erased) found.erased += 1;
      if (read % 200 === 0) step();
    }
    if (read < messages)
      damaged(
        'Store.Corrupt',
        `the session counts ${plural(messages, 'message')}, the log has ${count(read)}`,
      );
    else await checkContext(client, session, found);
  } catch (error) {
    if (isFailure(error, 'Store.Corrupt')) damaged(error.type, error.message);
    // The session was erased after it was listed.
    else if (isFailure(error, 'Store.SessionNotFound')) return;
    else throw error;
  }
  found.sessions += 1;
  step();
}

/** A context that cannot be computed is not a finding: the status of the session gives the reason. */
async function checkContext(client: PalimpsestClient, session: string, found: Found): Promise<void> {
  try {
    const { format, messages, system } = await client.context<Json>({ session });
    const rendered = { messages, ...(system === undefined ? {} : { system }) };
    const violations = contextFormatOf(format).violations(rendered);
    if (violations.length === 0) return;
    found.invalid += 1;
    if (found.invalidContexts.length < mostListed)
      found.invalidContexts.push({ session, format, violations: violations.slice(0, mostViolations) });
  } catch (error) {
    if (!isFailure(error, 'Budget.Unreachable')) throw error;
  }
}

async function tell({ out, json }: Run, found: Found, ms: number): Promise<void> {
  const { sessions, messages, erased, damaged, damage, invalid, invalidContexts } = found;
  if (json) return out.value({ ...found, identical: damaged === 0, valid: invalid === 0, ms });
  for (const one of damage)
    await out.paragraph(
      `damaged  ${one.session}: ${one.message} (the ${plural(one.afterMessages, 'message')} before are intact)`,
    );
  if (damaged > damage.length) await out.line(`and ${count(damaged - damage.length)} more`);
  for (const { session, format, violations } of invalidContexts)
    await out.paragraph(`invalid  ${session}: its context as ${format}: ${violations.join('; ')}`);
  if (invalid > invalidContexts.length) await out.line(`and ${count(invalid - invalidContexts.length)} more`);
  const tombstones = erased === 0 ? '' : `, ${count(erased)} of them erased,`;
  const read = `${plural(sessions, 'session')}, ${plural(messages, 'message')}${tombstones} in ${seconds(ms)}`;
  if (damaged + invalid === 0)
    return out.paragraph(`${read}: every hash matches, every context is valid`, out.style.green);
  const kinds = [
    ...(damaged > 0 ? [`${plural(damaged, 'session')} damaged`] : []),
    ...(invalid > 0 ? [`${plural(invalid, 'context')} invalid`] : []),
  ];
  await out.paragraph(`${read}: ${kinds.join(', ')}`, out.style.red);
  if (damaged > 0)
    out.note('Nothing was changed. Restore the damaged sessions from a backup of the database.');
  if (invalid > 0)
    out.note(`\`${programName()} restore SESSION 0\` renews an invalid context whose originals are intact.`);
}
