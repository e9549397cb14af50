/**
 * Turns whose messages come inside a `turn` signal. Any client that may signal workflows can send such turns. A tenant may
 * therefore have a key, with which its turns must be signed.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { checkId, type SessionIds } from '../src/contract/ids.js';
import { invalid } from '../src/errors.js';

export interface InlineMessages extends SessionIds {
  turnId: string;
  /** The messages, or their JSON as text. */
  messages: unknown;
  /** HMAC-SHA256 in hex: see {@link macOf}. */
  mac?: string;
}

export interface InlineTurnSettings {
  /** Tenants whose signals may carry messages without a signature; `*` for all. */
  inlineTurnTenants: readonly string[];
  /** Keys by tenant. Each inline turn of such a tenant must carry its messages as text, and their MAC. */
  inlineTurnKeys?: Readonly<Record<string, string>>;
}

/**
 * The HMAC-SHA256 (hex) of tenant, session, turn id and the text of the messages in UTF-8, separated by NUL characters. It binds
 * the messages to their place: a signal cannot be replayed into another session or under another turn id.
 * @internal A test signs with it.
 */
export function macOf(
  key: string,
  { tenant, session, turnId }: Omit<InlineMessages, 'messages'>,
  text: string,
): string {
  return createHmac('sha256', key).update([tenant, session, turnId, text].join('\0')).digest('hex');
}

/** Returns the messages of an inline turn. Throws `Input.Invalid` if the tenant may send none, or if the signature is wrong. */
export function inlineMessages(turn: InlineMessages, settings: InlineTurnSettings): unknown {
  const { tenant, turnId, messages, mac } = turn;
  checkId(turnId, 'turnId', 'stored');
  const { inlineTurnTenants, inlineTurnKeys = {} } = settings;
  const key = Object.hasOwn(inlineTurnKeys, tenant) ? inlineTurnKeys[tenant] : undefined;
  if (key !== undefined) {
    if (typeof messages !== 'string' || typeof mac !== 'string')
      throw invalid(
        `tenant ${JSON.stringify(tenant)} must sign messages inside a signal`,
        'mac',
        'Send `messages` as JSON text, and in `mac` the HMAC-SHA256 (hex) of tenant, session, turn id and that text, separated by NUL.',
      );
    const expected = Buffer.from(macOf(key, turn, messages));
    const given = Buffer.from(mac.toLowerCase());
    if (given.length !== expected.length || !timingSafeEqual(given, expected))
      throw invalid('the signature does not belong to these messages, this session and this turn id', 'mac');
  } else if (!inlineTurnTenants.includes('*') && !inlineTurnTenants.includes(tenant)) {
    throw invalid(
      `tenant ${JSON.stringify(tenant)} may not send messages inside a signal`,
      'messages',
      'Append through the library or the API and signal a reference, or give the tenant a key in PALIMPSEST_INLINE_TURN_KEYS.',
    );
  }
  return typeof messages === 'string' ? parsed(messages) : messages;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw invalid(
      `messages is a text, but not valid JSON: ${error instanceof Error ? error.message : String(error)}`,
      'messages',
    );
  }
}
