/** Options that the adapters of all frameworks share, and the recovery tools as frameworks run them. */
import type { PalimpsestClient } from '../contract/client.js';
import { checkKnown, knownOptions } from '../contract/options.js';
import { callRecoveryTool, type RecoveryToolName, recoveryTools } from '../contract/recovery-tools.js';
import type { Synced, SyncRequest } from '../contract/sync.js';
import { invalid } from '../errors.js';
import { heldContext } from './held.js';

/** The methods that an adapter calls: those of `Palimpsest` or `HttpPalimpsest`. */
export type AdapterClient = Pick<PalimpsestClient, 'sync' | 'toolResponse' | 'search' | 'expand'>;

export interface AdapterOptions {
  client: AdapterClient;
  /** Policy of a new session, for instance `{ model: 'gpt-4o' }`. An existing session keeps its policy. */
  policy?: SyncRequest['policy'];
  /**
   * What to do if the framework's messages lack messages of the session, or have others in their place: after an edit, a
   * regenerated answer, or a return to an earlier checkpoint. `fork`: go on in a fork that ends where both part; the session
   * keeps its messages. `append`: append what the session does not have. `refuse`: fail with `Store.ListEdited`.
   * @default 'fork'; with `memory`, which has no list to edit, 'append'
   */
  onEdit?: SyncRequest['onEdit'];
  /**
   * Whether the framework has only the new messages, and the session is its memory: the session's context is put before them.
   * @default false
   */
  memory?: boolean;
  /** Called with each answer of `sync`. Its `session` has the messages: the given one, or the fork in which it goes on. */
  onSync?: (synced: Synced) => void;
}

/** Tokens of the recovery tools in a request, about: the model reads their JSON. */
const toolTokens = Math.ceil(JSON.stringify(recoveryTools).length / 4);

/**
 * The policy of a new session. The context of an agent without the recovery tools does not name them; the session of an agent
 * with them counts them from its first request on.
 */
export function policyOfAgent(
  policy: SyncRequest['policy'],
  hasRecoveryTools: boolean,
): NonNullable<SyncRequest['policy']> {
  return { ...(hasRecoveryTools ? { overhead: toolTokens } : { recovery: 'none' }), ...policy };
}

/** The request of a `sync`. */
export function syncRequest(
  { policy, memory = false, onEdit = memory ? 'append' : 'fork' }: AdapterOptions,
  hasRecoveryTools: boolean,
): Required<Pick<SyncRequest, 'onEdit'>> & Pick<SyncRequest, 'policy'> {
  return { onEdit, policy: policyOfAgent(policy, hasRecoveryTools) };
}

/** The context of a session, the smallest one if none fits its budget; nothing if the session is new. */
export async function remembered<Message>(client: AdapterClient, session: string): Promise<Message[]> {
  const held = await heldContext<Message, unknown>(client, { session });
  return held?.context.messages ?? [];
}

/** Answers a call of a recovery tool in the session, or in the fork that continues it. */
export async function recovered(
  client: AdapterClient,
  session: string,
  name: RecoveryToolName,
  input: unknown,
): Promise<string> {
  const { session: inUse } = await client.sync({ session, messages: [] });
  return callRecoveryTool(client, inUse, name, input);
}

/** What a value of an option must be. */
export interface OptionRule {
  must: string;
  holds: (value: unknown) => boolean;
  isRequired?: boolean;
}

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;

/** Rules for `checkAdapterOptions`. */
export const optionRules = {
  client: (...methods: (keyof PalimpsestClient)[]): OptionRule => ({
    must: 'must be a Palimpsest or an HttpPalimpsest, as connect() resolves to',
    holds: (value) =>
      isObject(value) && methods.every((name) => typeof Reflect.get(value, name) === 'function'),
    isRequired: true,
  }),
  text: {
    must: 'must be a text that is not empty',
    holds: (value) => typeof value === 'string' && value !== '',
  },
  flag: { must: 'must be true or false', holds: (value) => typeof value === 'boolean' },
  object: { must: 'must be an object', holds: isObject },
  edit: {
    must: "must be 'fork', 'append' or 'refuse'",
    holds: (value) => ['fork', 'append', 'refuse'].some((known) => known === value),
  },
} satisfies Record<string, OptionRule | ((...methods: (keyof PalimpsestClient)[]) => OptionRule)>;

/** Refuses with `Input.Invalid` what only TypeScript refuses otherwise: an unknown option, and a value of another kind. */
export function checkAdapterOptions<Options extends object>(
  options: Options,
  rules: { [Name in keyof Required<Options>]: OptionRule },
): void {
  const known = Object.keys(rules);
  checkKnown(options, known);
  for (const [name, { must, holds, isRequired = false }] of Object.entries<OptionRule>(rules)) {
    const value: unknown = Reflect.get(options, name);
    if (value === undefined ? isRequired : !holds(value))
      throw invalid(`${name} ${must}`, name, knownOptions(known));
  }
}

/** The rules of `AdapterOptions`. */
export const sharedRules = {
  client: optionRules.client('sync', 'toolResponse', 'search', 'expand'),
  policy: optionRules.object,
  onEdit: optionRules.edit,
  memory: optionRules.flag,
  onSync: { must: 'must be a function', holds: (value) => typeof value === 'function' },
} satisfies { [Name in keyof AdapterOptions]-?: OptionRule };
