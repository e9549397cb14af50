/** Tells values from secrets: placeholders, references, code and ordinary words in the place of a secret stay. */

/** Values in place of a secret: placeholders in documentation, and references to the place of a secret. */
const noSecret =
  /^(?:[$%<{[(]|@[A-Z_]+@$|[*•.x#?_-]{3,}$|\.{3}|process\.|os\.|env[.[(]|config\.|settings\.|self\.|this\.|var\.|local\.|data\.|module\.|secrets?\.|vault:|ref\+|arn:|file:|\/\/|https?:\/\/|!|&|\/(?:run|var|etc|home|usr|opt|tmp|mnt|app)\/|\.{0,2}\/[\w.-]+\/|your|my[-_]?(?:password|secret|token|api)|change[-_]?(?:me|it)|replace[-_]?|insert[-_]?|enter[-_]?|dummy|fake|placeholder|example|sample|redacted|masked|hidden|undefined|null|nil|none|true|false|(?:str|string|number|int|integer|bool|boolean|bytes|object|array|any|unknown|text|varchar|optional|required|missing|invalid|empty|function|async|await|new|return|const|typeof|lambda|yes|no|on|off)(?![A-Za-z0-9])|ssh-(?:rsa|dss|ed25519)|ecdsa-|(?:\w+:)?(?:pass(?:word|wd)?|pwd|secret|token)$|\[REDACTED)/i;

/** A value that consists of the names of secrets, such as `user_password` or `accessToken`. */
const nameOfSecret =
  /^[a-z_$.-]*(?:password|passwd|passphrase|passwort|secret|token|api[_-]?key|credential|auth|(?:access|private|public|secret|client)[_-]?key)s?[a-z_$.-]*$/i;

const ordinaryWords =
  /\b(?:the|your|my|this|that|must|enter|please|is|are|was|be|been|an|to|for|from|of|in|on|at|and|or|if|not|no|with|required|optional|invalid|incorrect|wrong|failed|password|token|secret|key|field|string|should|least|characters|used|use|using|default|reset|forgot(?:ten)?|expired|missing|change|update|new|current|confirm|show|hide|policy|der|die|das|und|ist|nicht|ein|el|la|los|que|es|un|por|le|les|est|une)\b/i;

const plainWords =
  /^(?:incorrect|wrong|correct|valid|invalid|expired|weak|strong|hashed|encrypted|changed|updated|generated|provided|stored|protected|needed|given|blank|field|fields|input|prompt|prompts?|reset|hash|hashing|login|manager|policy|length|default|user(?:name)?|email|admin|basic|bearer|digest|value|values|type|types|name|names|data|file|files|form|header|headers|cookies?|authentication|authorization|strength|complexity|recovery|change|entry|setting|settings|validation|verification|confirmation|page|screen|dialog|label|button|column|param|params|parameter|parameters|argument|arguments|option|options|variable|property|attribute|error|errors|check|checks|only|sent|using|with|from|that|this|will|must|when|which|where|have|should|cannot|there|they|their|also|been|into|over|under|then|than|more|less|plain|plaintext|mismatch|forgotten|masked|callback|request|response|session|service|client|server|schema|handler|store|storage|access|sharing|rotation|here|below|above|followed|test|testing|empty|unchanged|same|different|ready|secure|insecure|good|safe|unsafe|result|results|desired|retype)$/i;

/** Whether a password in quotes may be one: ordinary sentences in its place are labels and messages. */
const isSentence = (value: string): boolean => /\s/.test(value) && ordinaryWords.test(value);

export const hasDigitOrSign = (value: string): boolean => /[\d!@#$%^&*+=~?]/.test(value);

/** Letters of both cases in an order that no ordinary word has. */
const isMixed = (value: string): boolean =>
  /[a-z][A-Z]/.test(value) && /[A-Z][a-z]*[A-Z]|[a-z]\d/.test(value);

/** Whether a value consists of random characters: letters and digits, or both cases and at least 16 characters. */
export const isRandom = (value: string): boolean =>
  (/\d/.test(value) && /[A-Za-z]/.test(value)) || (value.length >= 16 && isMixed(value));

const isAddress = /^[\w.+-]+@(?:[\w-]+\.)+[a-z]{2,}$/i;

/** A call, or a chain of names without digits. */
const isCode = (value: string): boolean =>
  /^[A-Za-z_$][\w$]*(?:\.[\w$]+)+\(/.test(value) ||
  (/^[A-Za-z_$][\w$]*(?:(?:\.|::|->|\?\.)[A-Za-z_$][\w$]*)+;?$/.test(value) && !/\d/.test(value)) ||
  /^[A-Za-z_$.]+[([]/.test(value);

export interface Given {
  /** The whole match, with the name of the secret. */
  match: string;
  /** Whether the value was in quotes. */
  quoted: boolean;
}

/**
 * Whether the value given for the name of a secret is none. A word of letters only, without quotes, is a name or a type, unless
 * it is a password; a number is a count unless its name says password.
 */
export function isHarmless(value: string, { match, quoted }: Given): boolean {
  const isPassword = /pass|pwd|\bpw\b|kennwort|pin\b|contrase|senha|密|--/i.test(match);
  if (noSecret.test(value) || nameOfSecret.test(value) || isSentence(value)) return true;
  if (isCode(value) && !quoted) return true;
  if (/^\d+(?:\.\d+)?[a-z%]{0,2}$/i.test(value)) return !isPassword || value.length < 4;
  if (hasDigitOrSign(value)) return false;
  if (!isPassword) return !quoted && !(value.length >= 16 && (isMixed(value) || /^[A-Z]+$/.test(value)));
  return plainWords.test(value) || (!quoted && (/[._]/.test(value) || /[a-z][A-Z]/.test(value)));
}

/** Whether a word of a sentence such as "the password is …" may be the password. */
export function isSaid(value: string, { match, quoted }: Given): boolean {
  if (noSecret.test(value) || nameOfSecret.test(value) || isSentence(value)) return false;
  if (isCode(value) || isAddress.test(value)) return false;
  if (/^\d+$/.test(value))
    return value.length >= 4 && /pass|pin|pw|code|otp|kennwort|contrase|clave|senha|парол/i.test(match);
  if (/^\d+(?:[.,:/-]\d+)*(?:[a-z]{1,3}|%)?$/i.test(value)) return false;
  if (hasDigitOrSign(value)) return true;
  if (isMixed(value)) return true;
  if (/^[a-z]+(?:-[a-z]+){3,}$/.test(value)) return /pass/i.test(match);
  return (
    (quoted || /^\p{Lu}\p{L}{4,}$/u.test(value)) &&
    /pass|kennwort|contrase|senha|clave|密码|密碼|パス|парол/i.test(match) &&
    !plainWords.test(value)
  );
}
