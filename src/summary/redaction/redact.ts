/**
 * Removes secrets from every text before it goes to the summarizer, into the summary or into the exact values. The log keeps
 * the original. A secret becomes `[REDACTED:kind:hash]`; the hash is keyed by tenant, so that equal secrets have equal hashes within
 * one tenant only.
 */
import { createHmac } from 'node:crypto';
import type { Policy } from '../../policy/defaults.js';
import { atOnce, type Steps } from '../../steps.js';
import { assertPattern, Matching } from '../../conversation/pattern.js';

interface SecretForm {
  kind: string;
  /** Every match contains one of these texts, in lower case; a text without any of them is not searched. */
  signs: readonly string[];
  /**
   * The secret is the group `secret`, or the whole match. Matching takes linear time, because repetitions are bounded. Only the lines
   * of a private key may be any number; a text can be divided into such lines in one way only.
   */
  form: RegExp;
}

/** The placeholder of a secret. It is never searched, so that redaction is idempotent. */
const placeholder = /\[REDACTED:[a-z_]{1,30}:[0-9a-f]{8}\]/g;
const fullMark = /^\[REDACTED:[a-z_]{1,30}:[0-9a-f]{8}\]$/;

const start = '(?<![A-Za-z0-9_-])';
const end = '(?![A-Za-z0-9_-])';
const form = (source: string, flags = ''): RegExp => new RegExp(source, `g${flags}`);

const keyEdge = (edge: string): string => `-----${edge} (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----`;

const secretWord =
  'pass(?:word|wd|phrase)?|pwd|secret(?:[_-]?(?:access[_-]?)?key)?|(?:api|access|auth|private|encryption|signing|account|client)[_-]?(?:key|secret|token)|(?:auth|access|refresh|session|bearer|id|bot|csrf|personal[_-]?access)[_-]?token|token|credentials?';

/** Secret forms as documented by their issuers, most specific first: later forms do not see earlier matches. */
const secretForms: readonly SecretForm[] = [
  {
    kind: 'private_key',
    signs: ['private key'],
    // Includes keys that are cut off at either end.
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
    // `scheme://user:password@host`; the password may contain `@` and ends at the last `@` before the host.
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
    // `DB_PASSWORD=…`, `"api_key": "…"`, `--password …`. A quoted secret ends at the closing quote. An unquoted secret is a word
    // that does not begin a call (`name(`) or an index (`name[`).
    form: form(
      `(?<![A-Za-z])(?:[A-Za-z0-9]{1,40}[_-]){0,6}(?:${secretWord})(?:\\\\?["'\`])?\\s{0,3}(?::=|=>|[:=])\\s{0,3}(?:\\\\?["'\`](?<secret>[^"'\`\\\\\\r\\n]{4,500})\\\\?["'\`]|(?<secret2>(?![\\w.$]{1,100}[(\\[])[^\\s"'\`,;()<>{}[\\]\\\\|]{6,500}))|--(?:password|token|secret|api-key)[ =](?<secret3>[^\\s"'-][^\\s"']{3,300})`,
      'i',
    ),
  },
];

/** Values that are written instead of a secret: placeholders in documentation, and expressions such as `process.env.KEY`. */
const noSecret =
  /^(?:\$|%|<|\{|\*{3,}|x{4,}$|\.{3}|process\.|os\.|env[.[(]|config\.|settings\.|self\.|this\.|your|my[-_]?(?:password|secret|token)|change[-_]?me|example|redacted|undefined|null|none|true|false|string|optional|required)/i;

/** A word of letters only, without quotes, is a name or a type; a number is a count unless its name says password. */
function isHarmless(secret: string, match: string): boolean {
  if (noSecret.test(secret)) return true;
  if (/^\d+$/.test(secret)) return !/pass|pwd/i.test(match);
  const isQuoted = /["'`]$/.test(match);
  return !isQuoted && !/[\d!#$%^&*]/.test(secret) && !/pass|pwd|--/i.test(match);
}

/** Redacts a text at once; `steps`, if present, redacts a long text in steps. */
export type Redact = ((text: string) => string) & { steps?: (text: string) => Steps<string> };

/** Redacts in steps if possible. */
export function* redacting(redact: Redact, text: string): Steps<string> {
  return redact.steps ? yield* redact.steps(text) : redact(text);
}

/**
 * The redactor of a policy, which takes linear time and is idempotent for the known forms; null if redaction is off.
 * Throws `Input.Invalid` with the path of a refused pattern: a policy stored before patterns were checked may have one, and
 * ignoring it would reveal its matches. The redactor throws the same if matching takes too long.
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
    const hidden = redact!.secrets ? yield* secretsIn(text, shown) : [];
    if (redact!.patterns.length === 0) return withMarks(text, hidden);
    // Each pattern searches the original text: one match may be inside another.
    const found: Span[] = [];
    for (const [index, pattern] of redact!.patterns.entries())
      yield* matchesIn(text, pattern, pathOf(index), matching, found);
    return withMarks(text, yield* besides(hidden, found, text, shown));
  }
  return Object.assign((text: string) => atOnce(steps(text)), { steps });
}

type Shown = (kind: string, secret: string) => string;

/** Maximum rounds: a secret next to another may be recognized only after the other is replaced. */
const MOST_ROUNDS = 4;

/** A span of the original text, and its replacement. */
interface Hidden extends Span {
  mark: string;
}

function* secretsIn(text: string, shown: Shown): Steps<Hidden[]> {
  let hidden: Hidden[] = [];
  for (let round = 0; round < MOST_ROUNDS; round++) {
    const before = hidden;
    const lower = withMarks(text, before).toLowerCase();
    for (const secretForm of secretForms) {
      if (secretForm.signs.some((sign) => lower.includes(sign)))
        hidden = withForm(text, hidden, secretForm, shown);
      yield;
    }
    if (hidden === before) break;
  }
  return hidden;
}

/** Adds the matches of this form in the text as redacted so far. */
function withForm(
  text: string,
  hidden: Hidden[],
  { kind, form: pattern }: SecretForm,
  shown: Shown,
): Hidden[] {
  const left = withMarks(text, hidden);
  const marks = marksIn(left);
  const found: Hidden[] = [];
  for (const read of left.matchAll(pattern)) {
    const [match] = read;
    const secret = namedIn(read.groups) ?? match;
    if (secret === '') continue;
    const from = read.index + match.indexOf(secret);
    const to = from + secret.length;
    if (cutsMark(marks, from, to) || fullMark.test(secret)) continue;
    if (kind === 'password' && isHarmless(secret, match)) continue;
    found.push({ from, to, mark: shown(kind, secret) });
  }
  return found.length === 0 ? hidden : inOriginal(found, hidden);
}

/** Adds spans found in the redacted text, in ascending order, and removes the spans inside them. */
function inOriginal(found: readonly Hidden[], hidden: readonly Hidden[]): Hidden[] {
  const all: Hidden[] = [];
  let next = 0;
  // The offset between the original and the redacted text at this position.
  let shift = 0;
  const passMarks = (upTo: number, keep: boolean) => {
    for (let one = hidden[next]; one && one.from - shift < upTo; one = hidden[++next]) {
      if (keep) all.push(one);
      shift += one.to - one.from - one.mark.length;
    }
  };
  for (const { from, to, mark } of found) {
    passMarks(from, true);
    const begin = from + shift;
    passMarks(to, false);
    all.push({ from: begin, to: to + shift, mark });
  }
  passMarks(Infinity, true);
  return all;
}

function withMarks(text: string, hidden: readonly Hidden[]): string {
  if (hidden.length === 0) return text;
  const pieces: string[] = [];
  let copied = 0;
  for (const { from, to, mark } of hidden) {
    pieces.push(text.slice(copied, from), mark);
    copied = to;
  }
  pieces.push(text.slice(copied));
  return pieces.join('');
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

/** Whether a span begins or ends inside a placeholder. */
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

/** Adds the matches of one pattern; adjacent matches are joined. */
function* matchesIn(
  text: string,
  pattern: string,
  path: string,
  matching: Matching,
  all: Span[],
): Steps<void> {
  const kept = marksIn(text);
  let last: Span | undefined;
  for (const found of matching.searchHidden(text, pattern, path)) {
    yield;
    // A match must not be a placeholder, nor begin or end inside one.
    if (found === null || cutsMark(kept, found.from, found.to)) continue;
    if (last?.to === found.from) last.to = found.to;
    else all.push((last = { from: found.from, to: found.to }));
  }
}

/** The spans hidden already, with the remaining matches around them; overlapping spans become one. */
function* besides(hidden: readonly Hidden[], found: Span[], text: string, shown: Shown): Steps<Hidden[]> {
  found.sort((one, other) => one.from - other.from || other.to - one.to);
  const kept = withEarlier(hidden, text);
  const all: Hidden[] = [];
  let nextKept = 0;
  const hide = (from: number, to: number) => {
    if (from < to) all.push({ from, to, mark: shown('custom', text.slice(from, to)) });
  };
  for (let index = 0; index < found.length;) {
    const { from, to: end } = found[index++]!;
    let to = end;
    for (let next = found[index]; next && next.from < to; next = found[++index]) to = Math.max(to, next.to);
    let at = from;
    for (let one = kept[nextKept]; one && one.from < to; one = kept[++nextKept]) {
      hide(at, one.from);
      all.push(one);
      at = Math.max(at, one.to);
    }
    hide(at, to);
    yield;
  }
  all.push(...kept.slice(nextKept));
  return all;
}

/** Adds the placeholders that the input text already had, except those inside a secret. */
function withEarlier(hidden: readonly Hidden[], text: string): Hidden[] {
  const earlier = marksIn(text).map(({ from, to }) => ({ from, to, mark: text.slice(from, to) }));
  const all = [...earlier, ...hidden].sort((one, other) => one.from - other.from || other.to - one.to);
  let end = 0;
  return all.filter(({ from, to }) => {
    const isFree = from >= end;
    end = Math.max(end, to);
    return isFree;
  });
}
