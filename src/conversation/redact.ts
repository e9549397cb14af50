/**
 * Takes secrets out of what summarizer, snapshot and ledger see. The log keeps the original. A secret becomes
 * `[REDACTED:kind:hash]`; the hash is keyed by the tenant, so that equal secrets look equal within one and nowhere else.
 */
import { createHmac } from 'node:crypto';
import type { Policy } from '../policy/schema.js';
import { atOnce, type Steps } from '../steps.js';
import { assertPattern, Matching } from './pattern.js';

interface SecretForm {
  kind: string;
  /** Every match holds one of these; a text without any is not searched. Compared in lower case. */
  signs: readonly string[];
  /** The secret is its group `secret`, or the whole match. Bounded everywhere, so that any text takes linear time. */
  form: RegExp;
}

/** What stands for a secret. Never looked into again, so that redacting twice changes nothing. */
const placeholder = /\[REDACTED:[a-z_]{1,30}:[0-9a-f]{8}\]/g;
const fullMark = /^\[REDACTED:[a-z_]{1,30}:[0-9a-f]{8}\]$/;

const start = '(?<![A-Za-z0-9_-])';
const end = '(?![A-Za-z0-9_-])';
const form = (source: string, flags = ''): RegExp => new RegExp(source, `g${flags}`);

const keyEdge = (edge: string): string => `-----${edge} (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----`;

const secretWord =
  'pass(?:word|wd|phrase)?|pwd|secret(?:[_-]?(?:access[_-]?)?key)?|(?:api|access|auth|private|encryption|signing|account|client)[_-]?(?:key|secret|token)|(?:auth|access|refresh|session|bearer|id|bot|csrf|personal[_-]?access)[_-]?token|token|credentials?';

/** The forms that issuers document. The most telling first: what one has taken, the next does not see. */
const secretForms: readonly SecretForm[] = [
  {
    kind: 'private_key',
    signs: ['private key'],
    // A key that is cut off, at either end of a slice, is one too.
    form: form(
      `${keyEdge('BEGIN')}(?:(?:(?!-----)[^]){0,20000}${keyEdge('END')}|(?:(?:\\\\[nr]|\\s){1,4}[A-Za-z0-9+/=]{16,100})*(?:(?:\\\\[nr]|\\s){1,4}[A-Za-z0-9+/=]{1,100})?)|(?:^|[\\s"])(?<secret>(?:[A-Za-z0-9+/=]{20,80}(?:\\\\[nr]|\\s){1,4}){1,200}${keyEdge('END')})`,
    ),
  },
  {
    kind: 'jwt',
    signs: ['eyj'],
    form: form(`${start}eyJ[\\w-]{8,4000}\\.[\\w-]{4,8000}(?:\\.[\\w-]{10,2000})?`),
  },
  {
    kind: 'provider_key',
    signs: [
      'sk-',
      'sk_',
      'gsk_',
      'xai-',
      'aiza',
      'r8_',
      'hf_',
      'pplx-',
      'key-',
      'nvapi-',
      'rk_',
      'whsec_',
      'dop_v1_',
      'sg.',
    ],
    form: form(
      `${start}(?:sk-(?:proj-|svcacct-|admin-|ant-(?:api|admin)\\d\\d-|or-v1-|lf-)?[\\w-]{16,250}|(?:sk|rk)_(?:live|test)_\\w{10,250}|whsec_[\\w+/=]{20,100}|gsk_\\w{20,100}|xai-\\w{20,120}|AIza[\\w-]{35}|r8_\\w{30,50}|hf_[A-Za-z]{30,50}|pplx-\\w{30,70}|nvapi-[\\w-]{40,90}|dop_v1_[0-9a-f]{64}|SG\\.[\\w-]{16,40}\\.[\\w-]{30,60}|key-[0-9a-f]{32})${end}`,
    ),
  },
  {
    kind: 'aws_key',
    signs: ['akia', 'asia', 'abia', 'acca'],
    form: form(`${start}(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}${end}`),
  },
  {
    kind: 'github_token',
    signs: ['ghp_', 'gho_', 'ghu_', 'ghs_', 'ghr_', 'github_pat_', 'glpat-'],
    form: form(`${start}(?:gh[pousr]_\\w{30,255}|github_pat_\\w{40,255}|glpat-[\\w-]{20,60})${end}`),
  },
  {
    kind: 'slack_token',
    signs: ['xox', 'xapp-', 'hooks.slack.com/'],
    form: form(
      `${start}(?:xox[abeoprs](?:\\.xox[bp])?-[\\w-]{10,250}|xapp-\\d-[\\w-]{20,250})|hooks\\.slack\\.com/(?:services|workflows)/(?<secret>[\\w/]{20,120})`,
    ),
  },
  {
    kind: 'package_token',
    signs: ['npm_', 'pypi-', 'dckr_pat_', 'rubygems_'],
    form: form(
      `${start}(?:npm_\\w{36}|pypi-[\\w-]{50,250}|dckr_pat_[\\w-]{20,60}|rubygems_[0-9a-f]{48})${end}`,
    ),
  },
  {
    kind: 'connection_password',
    signs: ['://'],
    // `scheme://user:password@host`; the password may hold `@`, the last one before the host ends it.
    form: form(
      `(?<=[a-z][a-z0-9+.-]{1,20}://[^\\s/:@"'<>]{0,100}:)(?<secret>[^\\s/"'<>]{1,200})(?=@[\\w.[-])`,
      'i',
    ),
  },
  {
    kind: 'authorization',
    signs: ['authorization', 'bearer ', 'x-api-key', 'cookie'],
    form: form(
      `(?:authorization|proxy-authorization)\\\\?["']?\\s{0,3}[:=]\\s{0,3}\\\\?["']?(?:(?:bearer|basic|token|apikey|digest)\\s{1,3})?(?<secret>[^\\s"'\\\\,;<>\`]{6,4000})|x-api-key\\\\?["']?\\s{0,3}[:=]\\s{0,3}\\\\?["']?(?<secret2>[^\\s"'\\\\,;<>\`]{6,500})|(?<![A-Za-z])bearer\\s{1,3}(?<secret3>(?=[^\\s]{0,200}\\d)[\\w.~+/=-]{16,4000})|(?<![A-Za-z-])(?:set-)?cookie\\\\?["']?:\\s{0,3}(?<secret4>[^\\r\\n"'\\\\]{6,4000})`,
      'i',
    ),
  },
  {
    kind: 'password',
    signs: ['pass', 'pwd', 'secret', 'key', 'token', 'credential'],
    // `DB_PASSWORD=…`, `"api_key": "…"`, `--password …`; in quotes up to the quote, otherwise a word that is no code.
    form: form(
      `(?<![A-Za-z])(?:[A-Za-z0-9]{1,40}[_-]){0,6}(?:${secretWord})(?:\\\\?["'\`])?\\s{0,3}(?::=|=>|[:=])\\s{0,3}(?:\\\\?["'\`](?<secret>[^"'\`\\\\\\r\\n]{4,500})\\\\?["'\`]|(?<secret2>(?![\\w.$]{1,100}[(\\[])[^\\s"'\`,;()<>{}[\\]\\\\|]{6,500}))|--(?:password|token|secret|api-key)[ =](?<secret3>[^\\s"'-][^\\s"']{3,300})`,
      'i',
    ),
  },
];

/** Values that stand where a secret would: placeholders of documentation, references to where it is kept. */
const noSecret =
  /^(?:\$|%|<|\{|\*{3,}|x{4,}$|\.{3}|process\.|os\.|env[.[(]|config\.|settings\.|self\.|this\.|your|my[-_]?(?:password|secret|token)|change[-_]?me|example|redacted|undefined|null|none|true|false|string|optional|required)/i;

/** A word without quotes is a name or a type unless it holds more than letters; a number is a count unless it is called a password. */
function isHarmless(secret: string, match: string): boolean {
  if (noSecret.test(secret)) return true;
  if (/^\d+$/.test(secret)) return !/pass|pwd/i.test(match);
  const isQuoted = /["'`]$/.test(match);
  return !isQuoted && !/[\d!#$%^&*]/.test(secret) && !/pass|pwd|--/i.test(match);
}

/** Redacts a text at once; `steps`, where there are any, does the same for a long one in steps. */
export type Redact = ((text: string) => string) & { steps?: (text: string) => Steps<string> };

/** Redacts with whatever steps there are. */
export function* redacting(redact: Redact, text: string): Steps<string> {
  return redact.steps ? yield* redact.steps(text) : redact(text);
}

/**
 * What redacts a text, linear in it and idempotent for the known forms; null where the policy wants nothing redacted.
 * Throws `Input.Invalid` with its path for a pattern that cannot be matched: a policy stored before patterns were checked
 * may hold one, and leaving it out would show what it hides. So does the redactor where matching takes too long.
 */
export function redactorFor(
  redact: Policy['redact'],
  tenant: string,
  matching = new Matching(),
): Redact | null {
  if (redact === null) return null;
  const pathOf = (index: number) => `policy.redact.patterns[${index}]`;
  redact.patterns.forEach((pattern, index) => assertPattern(pattern, pathOf(index)));
  const key = `palimpsest redaction of ${tenant}`;
  const shown = (kind: string, secret: string): string => {
    const hash = createHmac('sha256', key).update(secret).digest('hex').slice(0, 8);
    return `[REDACTED:${kind}:${hash}]`;
  };
  function* steps(text: string): Steps<string> {
    let left = redact!.secrets ? yield* withoutSecrets(text, shown) : text;
    for (const [index, pattern] of redact!.patterns.entries())
      left = yield* withoutMatches(left, pattern, pathOf(index), shown, matching);
    return left;
  }
  return Object.assign((text: string) => atOnce(steps(text)), { steps });
}

type Shown = (kind: string, secret: string) => string;

/** Most rounds: what stands beside a secret may be seen as one only when that is gone. */
const MOST_ROUNDS = 4;

function* withoutSecrets(text: string, shown: Shown): Steps<string> {
  let left = text;
  for (let round = 0; round < MOST_ROUNDS; round++) {
    const before = left;
    const lower = before.toLowerCase();
    for (const secretForm of secretForms) {
      if (secretForm.signs.some((sign) => lower.includes(sign))) left = without(left, secretForm, shown);
      yield;
    }
    if (left === before) break;
  }
  return left;
}

function without(text: string, { kind, form: pattern }: SecretForm, shown: Shown): string {
  const marks = marksIn(text);
  return text.replace(pattern, (match: string, ...rest: unknown[]) => {
    const groups = rest.at(-1);
    const at = rest.findLast((argument) => typeof argument === 'number');
    const secret = namedIn(groups) ?? match;
    if (secret === '' || typeof at !== 'number') return match;
    const from = at + match.indexOf(secret);
    if (cutsMark(marks, from, from + secret.length) || fullMark.test(secret)) return match;
    if (kind === 'password' && isHarmless(secret, match)) return match;
    return match.replace(secret, () => shown(kind, secret));
  });
}

interface Span {
  from: number;
  to: number;
}

function marksIn(text: string): Span[] {
  return [...text.matchAll(placeholder)].map(({ index, 0: found }) => ({
    from: index,
    to: index + found.length,
  }));
}

/** Whether a stretch begins or ends inside what stands for a secret. */
function cutsMark(marks: readonly Span[], from: number, to: number): boolean {
  const isInside = (at: number) => {
    let [low, high] = [0, marks.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((marks[middle]?.to ?? 0) <= at) low = middle + 1;
      else high = middle;
    }
    return (marks[low]?.from ?? Infinity) < at;
  };
  return isInside(from) || isInside(to);
}

/** The named group that matched. */
function namedIn(groups: unknown): string | null {
  if (typeof groups !== 'object' || groups === null) return null;
  const found = Object.values(groups).find((value) => typeof value === 'string');
  return typeof found === 'string' ? found : null;
}

function* withoutMatches(
  text: string,
  pattern: string,
  path: string,
  shown: Shown,
  matching: Matching,
): Steps<string> {
  const kept = marksIn(text);
  const pieces: string[] = [];
  let copied = 0;
  let nextKept = 0;
  for (const found of matching.search(text, pattern, path)) {
    yield;
    if (found === null) continue;
    const { from, to, match } = found;
    while (nextKept < kept.length && (kept[nextKept]?.to ?? 0) <= from) nextKept++;
    // What is redacted already is no match, nor part of one.
    const overlapped = kept[nextKept];
    if (overlapped && overlapped.from < to) continue;
    pieces.push(text.slice(copied, from), shown('custom', match));
    copied = to;
  }
  pieces.push(text.slice(copied));
  return pieces.join('');
}
