/** Stores what is new in a client's list, and says what an edited list means. */
import type { SyncRequest } from '../contract/sync.js';
import type { Json } from '../conversation/message.js';
import { isFailure, PalimpsestError } from '../errors.js';
import { appendedItems } from '../formats/native.js';
import type { SyncedSizes } from '../library/sync.js';
import type { PolicyInput } from '../policy/schema.js';
import { answerFrom } from './answers.js';
import type { Protocol } from './protocols/protocol.js';
import { chatMessagesOf, isSameAnswer, lengthOfAnswer } from './same-answer.js';
import type { GatewayClient } from './settings.js';

export type EditMode = NonNullable<SyncRequest['onEdit']>;

type Asked = Parameters<GatewayClient['syncSizes']>[0];

interface ListToStore extends Omit<Asked, 'policy' | 'onEdit'> {
  /** Policies of a new session: the next one is for windows that are too small for the one before. */
  policies: readonly PolicyInput[];
  /** Undefined: as `fork`, if list and session have at least their first message in common; otherwise as `refuse`. */
  onEdit: EditMode | undefined;
}

/** Throws every failure of `sync`. An answer that the log has in other words is no edit. */
export async function storeList(
  client: GatewayClient,
  protocol: Protocol,
  { policies, onEdit, ...list }: ListToStore,
): Promise<SyncedSizes> {
  const sync = (changes: Pick<Asked, 'onEdit' | 'instead'>) =>
    synced(client, { ...list, ...changes }, policies);
  const unlessEdited = (changes: Pick<Asked, 'instead'>) =>
    sync({ ...changes, onEdit: 'refuse' }).catch((error: unknown) => {
      if (isFailure(error, 'Store.ListEdited')) return error;
      throw error;
    });
  const found = await unlessEdited({});
  if (!(found instanceof PalimpsestError)) return found;
  const messages = list.messages as Json[];
  const { branch, branchKnown, branchCommonSeq, branchLastSeq, ...inUse } = found.details ?? {};
  const instead = await answerInLog(client, protocol, messages, inUse);
  const again = instead ? await unlessEdited({ instead }) : found;
  if (!(again instanceof PalimpsestError)) return again;
  const isOther = onEdit === undefined && again.details?.commonSeq === 0;
  if (onEdit === 'refuse' || isOther) throw again;
  if (onEdit === 'append') return sync({ onEdit, ...(instead && { instead }) });
  // The list may go on in another branch, which has the answer in other words too.
  const ofBranch = await answerInLog(client, protocol, messages, {
    ...{ session: branch, known: branchKnown },
    ...{ commonSeq: branchCommonSeq, lastSeq: branchLastSeq },
  });
  const answer = ofBranch ?? instead;
  return sync({ onEdit: 'fork', ...(answer && { instead: answer }) });
}

async function synced(
  client: GatewayClient,
  request: Asked,
  [policy, ...others]: readonly PolicyInput[],
): Promise<SyncedSizes> {
  try {
    return await client.syncSizes({ ...request, policy });
  } catch (error) {
    if (others.length === 0 || !isFailure(error, 'Input.Invalid') || !error.path?.startsWith('policy'))
      throw error;
    return synced(client, request, others);
  }
}

/** Messages of the log that stand for one answer, at most, and the characters of them. */
const mostMessages = 200;
const mostCharacters = 8_000_000;

/** The answer of the log in place of that of the list, if both say the same. */
async function answerInLog(
  client: GatewayClient,
  protocol: Protocol,
  list: readonly Json[],
  { session, known, commonSeq, lastSeq }: Readonly<Record<string, unknown>>,
): Promise<SyncRequest['instead'] | null> {
  if (typeof session !== 'string' || typeof known !== 'number') return null;
  if (typeof commonSeq !== 'number' || typeof lastSeq !== 'number') return null;
  const answer = answerFrom(protocol, list, known);
  if (answer.length === 0 || lastSeq === commonSeq) return null;
  const page = { fromSeq: commonSeq + 1, limit: mostMessages, maxCharacters: mostCharacters };
  const { messages, nextSeq } = await client.expand({ session, ...page });
  const held = chatMessagesOf(protocol, answer);
  const said = messages.map(({ message }) => message);
  // An edited list parts from the log after the answer.
  if (held === null) return null;
  const end = lengthOfAnswer(said, held);
  if (end === said.length && nextSeq !== null) return null;
  if (!isSameAnswer(said.slice(0, end), held)) return null;
  return { at: known, items: answer.length, messages: appendedItems(messages.slice(0, end)) };
}
