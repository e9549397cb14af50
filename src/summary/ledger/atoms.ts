import { clip, linesOf, sentencesOf } from '../text/sentences.js';

/**
 * Atoms: strings that a summary must not paraphrase, found by code. One pass over the text, word by word; every pattern
 * is bounded, so megabytes of any content take linear time.
 */
export const atomKinds = [
  'path',
  'url',
  'id',
  'hash',
  'version',
  'value',
  'fact',
  'error',
  'constraint',
] as const;

export type AtomKind = (typeof atomKinds)[number];

/** Receives each occurrence in order. The same atom may come often. */
export type AtomVisitor = (kind: AtomKind, atom: string) => void;

/** Runs between spaces, quotes and brackets; brackets around a whole path segment (`/app/(group)/[id]/`) belong to it. */
const word =
  /(?:(?<=\/)(?:\([\w.-]{1,40}\)|\[[\w.-]{1,40}\])(?=[/.])|[^\s"'`<>()[\]{},;|\u00AB\u00BB\u201C-\u201F\u3000-\u303F\uFF08-\uFF1B])+/g;

/** Most words: letters alone, in none of the cases that names in code have. No kind of atom looks like this. */
const plainWord = /^[A-Za-z]?[a-z]*$/;

/** Longest word that is looked at; beyond are encoded bytes. URLs may be longer. */
const LONGEST_WORD = 160;
const LONGEST_URL = 400;

/** Paths, URLs, identifiers, hashes, versions, and values of one text. Names of JSON fields are not identifiers. */
export function wordAtoms(text: string, visit: AtomVisitor): void {
  const plain = /^\s*[{["]/.test(text) ? unescaped(text) : text;
  const isDiff = plain.includes('diff --git ');
  for (const match of plain.matchAll(word)) {
    if (plainWord.test(match[0])) continue;
    const end = match.index + match[0].length;
    const isClosingTag = match[0].startsWith('/') && plain[match.index - 1] === '<';
    const isColor = plain[end] === ';' && /^#[0-9a-f]{3,8}$/i.test(match[0]);
    if (match[0].length > LONGEST_URL || isClosingTag || isColor || plain.startsWith('":', end)) continue;
    // `a/` and `b/` of a diff stand for the two sides, not for folders.
    const trimmed = trim(isDiff ? match[0].replace(/^[ab]\/(?=\S)/, '') : match[0]);
    if (/^[a-z][a-z0-9+.-]{1,15}:\/\/[^/]/i.test(trimmed)) visit('url', trimmed);
    else for (const part of trimmed.split(/[=&?]/, 8)) visitWord(trim(part), visit);
  }
  for (const match of plain.matchAll(value)) visit('value', match[0].trim());
}

/** Text of JSON, as far as words need it. */
function unescaped(json: string): string {
  return json.replace(/\\[\\nrt"]/g, (escape) =>
    escape === '\\"' || escape === '\\\\' ? escape.slice(1) : ' ',
  );
}

/** Punctuation around a word; dots and slashes that begin a path stay. */
function trim(text: string): string {
  let from = 0;
  let to = text.length;
  while (from < to && '*_:!?~^%-+–—•·#$@'.includes(text[from]!) && !keepsStart(text, from)) from++;
  while (to > from && '.,:!?*~^-–—•·…#@&$/\\'.includes(text[to - 1]!)) to--;
  return text.slice(from, to);
}

function keepsStart(text: string, at: number): boolean {
  const next = text[at + 1] ?? '';
  return (
    (text[at] === '#' && /[A-Z0-9]/.test(next)) ||
    (text[at] === '~' && next === '/') ||
    (text[at] === '_' && /\w/.test(next)) ||
    (text[at] === '@' && /[\w/]/.test(next))
  );
}

function visitWord(text: string, visit: AtomVisitor): void {
  if (text.length < 3 || text.length > LONGEST_WORD || plainWord.test(text)) return;
  const kind = kindOf(text);
  if (kind === 'path') visit('path', text.replace(lineNumber, ''));
  else if (kind) visit(kind, text);
}

const fileName =
  /^[\w.@+-]*\w\.(?:[cm]?[jt]sx?|py[iw]?|ipynb|rs|go|java|kts?|scala|c|cc|cpp|h|hpp|cs|rb|php|swift|sh|bash|zsh|ps1|sql|html?|s?css|less|vue|svelte|md|mdx|rst|txt|csv|tsv|jsonl?|ya?ml|toml|ini|cfg|conf|env|lock|log|xml|proto|graphql|tf|ex|exs|erl|hs|clj|lua|r|jl|dart|zig|nix|gradle|patch|diff|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|webp|mp[34]|wav|zip|t?gz|tar|db|sqlite|parquet|wasm|bin|exe|so|dll)(?::\d{1,6}){0,2}$/i;

/** `:42`, `:42:7`, and what `grep` puts behind a file's name. */
const lineNumber = /(?:(?::\d{1,6}){1,2}|(?<=\.\w{1,8}):[A-Za-z@{}].*)$/;

function kindOf(text: string): AtomKind | null {
  if (text.includes('/') || text.includes('\\')) return isPath(text) ? 'path' : null;
  if (fileName.test(text.replace(lineNumber, ''))) return 'path';
  if (/^(?:sha\d{1,3}:)?[0-9a-f]{7,128}$/i.test(text)) return hashKind(text);
  if (/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text)) return 'id';
  if (/^(?:[\w.-]{1,80}@)?[v^~]?\d{1,5}(?:\.\d{1,6}){1,3}(?:[-+.][\w.+-]{1,40})?$/.test(text)) {
    return /\d\.\d+\.\d|[@v^~]|[-+]/.test(text) ? 'version' : null;
  }
  if (/^[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}$/.test(text)) return 'id';
  if (/^\d{4}-\d{2}-\d{2}(?:[T_ ][\d:.]{4,15}(?:Z|[+-]\d\d:?\d\d)?)?$/.test(text)) return 'value';
  if (/^#?\d{3,20}$/.test(text))
    return /^(?:19|20)\d\d$|^100(?:644|755)$/.test(text) || text.length < 4 ? null : 'id';
  return isIdentifier(text) ? 'id' : null;
}

function isPath(text: string): boolean {
  if (notPath.test(text)) return false;
  if (!/^(?:[A-Za-z]:[\\/]|\.{1,2}\/|~\/|@?\/|@?[\w.-])[\w./\\@+~%:#$()[\]-]*$/.test(text)) return false;
  if (text.includes('\\') && !/^[A-Za-z]:\\/.test(text)) return false;
  if (/^\d+(?:\/\d+){1,2}$/.test(text) || !/[A-Za-z]{2}/.test(text)) return false;
  const slashes = text.split(/[\\/]/).length - 1;
  return (
    /^(?:[A-Za-z]:[\\/]|\.{1,2}\/|~\/|@?\/\w)/.test(text) ||
    slashes >= 2 ||
    /\.\w{1,8}(?::\d+){0,2}$/.test(text) ||
    /[\d_.-]/.test(text)
  );
}

/**
 * Not the path of anything: devices of the shell, `s/this/that/`, examples (`/path/to/x`, `/Users/.../x`), lists of options
 * (`--a/--b`), names with their number of arguments (`String.trim/1`).
 */
const notPath =
  /^\/dev\/(?:null|zero|u?random|std\w+|tty)\b|^[sy]\/|\/\.\.\.(?:\/|$)|^\/path\/to\b|\/-|^[\w.]+\/\d{1,2}$/;

function hashKind(text: string): AtomKind | null {
  if (/^\d+$/.test(text)) return 'id';
  return /\d/.test(text) && /[a-f]/i.test(text) ? 'hash' : null;
}

/** Utility classes of style sheets: in every second line of some projects, needed by nobody. */
const styleClass =
  /^(?:[a-z-]{2,12}:){0,3}-?(?:[mp][trblxyse]?|gap(?:-[xy])?|space-[xy]|[wh]|(?:min|max)-[wh]|size|text|bg|border(?:-[trblxy])?|rounded(?:-\w{1,2})?|z|top|left|right|bottom|inset(?:-[xy])?|translate-[xy]|scale|rotate|grid-cols|col-span|flex|font|leading|shadow|opacity|ring|duration|delay|order|tracking|line-clamp)(?:-[a-z]{2,8})?-\d{1,4}(?:\.5)?$/;

/** Lengths of style sheets, ordinals, ranges of `sed`, file modes of `git`, `&1.name` of Elixir. */
const notIdentifier =
  /^-?\d{1,5}(?:\.\d{1,4})?(?:st|nd|rd|th|am|pm|[a-z]|ms|px|r?em|v[hw]|vmin|vmax|pt|ch|fr|deg|gb|mb|kb)$|^100(?:644|755)$|^\d+[-:]\D|^\d+\.[a-z_]|\.\./i;

/** Names that code or a database gave: with digits among letters, snake_case, camelCase, dotted, SCREAMING-KEBAB. */
function isIdentifier(text: string): boolean {
  if (!/^[#@]?[\w$][\w$.:@-]*\w$/.test(text)) return false;
  if (styleClass.test(text) || notIdentifier.test(text)) return false;
  const hasDigit = /\d/.test(text);
  const hasLetter = /[A-Za-z]/.test(text);
  if (!hasLetter) return false;
  if (hasDigit) return text.length >= 4;
  return (
    /[a-z]_[a-z]|[A-Z]_[A-Z]|[a-z][A-Z]|^[A-Z]{2,}-[A-Z]{2,}/.test(text) ||
    /^\w+(?:\.\w+){2,}$/.test(text) ||
    (/^\w+-\w+-\w+(?:-\w+)*$/.test(text) === false && /^[a-z]\w+\.[a-z]\w+$/i.test(text))
  );
}

const units =
  '%|[kKMGT]i?B|bytes?|[mµun]?s|sec(?:onds?)?|min(?:utes?)?|hours?|hrs?|days?|weeks?|months?|years?|px|[kKMG]?Hz|[kcm]?m|km\\/h|mph|[kmµ]?g|lbs?|°[CF]|tokens?|rows?|items?|points?|miles|USD|EUR|GBP|dollars|euros|passengers?|bags?|guests?|people|tickets?|nights?';

/** `15 %`, `512 MB`, `$1,234.50`, `€20`. */
const value = new RegExp(
  `(?<![\\w.,$€£-])(?:[$€£] ?\\d{1,12}(?:[.,]\\d{1,6}){0,4}(?![\\w])|\\d{1,12}(?:[.,]\\d{1,6}){0,3} ?(?:${units})(?![\\w]))`,
  'g',
);

const errorLine =
  /(?:\b[A-Z]\w{0,60}(?:Error|Exception|Warning|Fault)\b|\b(?:error|fatal|panic|exception|traceback|failed|failure|denied|refused|not found|no such file|cannot|segfault|timed out|undefined reference|command not found)\b|\bE[A-Z]{4,20}\b)/i;

/** The beginning of a line says best which error it is. */
const LONGEST_ERROR = 140;

/**
 * A line of a program or of a diff that mentions an error, where a tool showed a file: numbered, or ending or beginning as
 * only code does.
 */
function isCode(line: string): boolean {
  const plain = line.replace(/^\s*\d{1,6}\s*[→|:\t]\s?|^[+-](?=\s)/, '').trim();
  return (
    /^\s*\d{1,6}(?:→|\t|\s{1,4}\|)/.test(line) ||
    /^(?:\d{1,6}\s+)?(?:except|raise|throw|catch|try|return|import|from|if|else|elif|def|class|function|const|let|var|export|rescue|await|assert)\b/.test(
      plain,
    ) ||
    /^(?:\/\/|\/\*|\*\s|#\s|<!--|\})/.test(plain) ||
    /(?:[;{]|\(|=>|\},?|\);?)$/.test(plain) ||
    /\.(?:error|fatal|exception|warn)\(/.test(plain)
  );
}

/** Lines that report an error, clipped. */
export function errorAtoms(text: string, visit: AtomVisitor): void {
  for (const line of linesOf(text)) {
    if (line.length < 8 || line.length > 2_000) continue;
    const start = line.slice(0, 300);
    if (isCode(start)) continue;
    if (
      /(?:error|exception|failed|fatal|panic)\b\s*[:(\[]|\berror [A-Z]{1,5}\d{1,6}:|^(?:error|fatal|panic|E\s{2,})|Error:|: (?:not found|no such|permission denied|command not found)/i.test(
        start,
      ) &&
      errorLine.test(start)
    ) {
      visit('error', clip(line.replace(/\s+/g, ' ').trim(), LONGEST_ERROR));
    }
  }
}

const rule =
  /\b(?:must(?:n't)?|never|always|do not|don't|does not|should(?:n't| not)|shall|may not|cannot|can't|(?<!-)only|no more than|at most|at least|make sure|ensure|be sure|required?|requires|prefer(?:ably|red)?|avoid|without|forbidden|not allowed|mandatory|stick to|limit(?:ed)? to|keep in mind)\b/i;

const LONGEST_RULE = 240;

/** A user who pastes what a compiler or a shell said states no rule. */
const report =
  /^(?:\[\w{1,8}\]|(?:warning|error|fatal|cannot|could not|failed|unable)\b)|\.\w{1,8}:\d{1,6}:\d/i;

/** Sentences that state a rule. Call it with text of users and system messages only: a rule of a tool is none. */
export function constraintAtoms(text: string, visit: AtomVisitor): void {
  for (const sentence of sentencesOf(text)) {
    if (sentence.length >= 12 && rule.test(sentence.slice(0, LONGEST_RULE)) && !report.test(sentence))
      visit('constraint', clip(sentence, LONGEST_RULE));
  }
}
