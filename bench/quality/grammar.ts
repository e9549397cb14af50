/**
 * Identifiers as the quality bench counts them. This grammar is separate and was frozen before exact values were tuned, so that
 * the measure is independent of them. It shares no code with src/summary.
 *
 * Specification. A text is cut into words at white space and at any of `" ' ` < > ( ) [ ] { } , ; | = ! * ^ $ \` and at
 * characters that are neither ASCII nor letters. A word loses the characters `- : @ + % & ?` at its start and
 * `. : / ? & - + % # @ ~ _` at its end. It is an identifier of the first class that it meets:
 *
 *   url      begins with http:// or https:// (cut at white space, quotes, brackets, `\` and `|` only; 10 to 300 characters)
 *   email    one @ between a name and a domain with a dot
 *   path     4 to 200 characters of `A-Z a-z 0-9 _ . / @ + ~ -`, with a letter, no `//`; and either it begins with `/`, `./`,
 *            `../` or `~/` and has two letters, or it holds two slashes, or it ends in a file ending of the list below
 *   date     yyyy-mm-dd
 *   version  two dots or more between numbers, perhaps with a leading v and a suffix
 *   hash     a UUID, or 7 to 64 hexadecimal digits with both a letter and a digit
 *   id       letters and digits together, 5 to 80 characters of `A-Z a-z 0-9 _ -` (perhaps after one `#`), but not a number
 *            with up to three letters behind it (a unit or an ordinal); or 5 to 20 digits; or `#` and 3 digits or more
 *   symbol   a name in code without digits, 6 to 80 characters: parts joined by `_`, a capital behind a small letter, or
 *            three names or more joined by dots
 *
 * Symbols are counted apart: an agent that writes code repeats those of the language and of its libraries, which nobody would
 * look up in a memory. JSON arguments of calls are read by their values; keys are not identifiers.
 */
export const classes = ['url', 'email', 'path', 'date', 'version', 'hash', 'id', 'symbol'] as const;
export type IdentifierClass = (typeof classes)[number];

/** Every identifier of a text with its class. */
export function identifiersOf(text: string): Map<string, IdentifierClass> {
  const found = new Map<string, IdentifierClass>();
  const rest = text.replace(/\bhttps?:\/\/[^\s"'`<>()[\]{}\\|]{2,600}/g, (match) => {
    const url = match.replace(/[.:/?&\-+%#@~_,;]+$/, '');
    if (url.length >= 10 && url.length <= 300) found.set(url, 'url');
    return ' ';
  });
  for (const word of rest.split(/[\s"'`<>()[\]{},;|=!*^$\\]+|[^\p{ASCII}\p{L}]+/u)) {
    if (word.length < 4 || word.length > 250) continue;
    const trimmed = word.replace(/^[-:@+%&?]+/, '').replace(/[.:/?&\-+%#@~_]+$/, '');
    const kind = classOf(trimmed);
    if (kind) found.set(trimmed, kind);
  }
  return found;
}

const endings = new Set(
  (
    'ts tsx js jsx mjs cjs py pyi ipynb rs go java kt c cc cpp h hpp cs rb php swift sh sql html css scss vue svelte md mdx rst txt csv tsv ' +
    'json jsonl yaml yml toml ini cfg conf env lock log xml proto tf ex lua r zig patch diff pdf docx xlsx pptx png jpg jpeg gif svg mp3 mp4 zip gz tar db sqlite'
  ).split(' '),
);

function classOf(word: string): IdentifierClass | null {
  if (/^[\w.+-]{1,64}@[\w-]{1,60}(?:\.[\w-]{1,60})+$/.test(word)) return 'email';
  if (isPath(word)) return 'path';
  if (/^\d{4}-\d\d-\d\d$/.test(word)) return 'date';
  if (/^v?\d{1,5}(?:\.\d{1,6}){2,3}(?:[-+.]?[A-Za-z][\w.-]{0,30})?$/.test(word)) return 'version';
  if (/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(word)) return 'hash';
  if (/^[0-9a-f]{7,64}$/i.test(word) && /\d/.test(word) && /[a-f]/i.test(word)) return 'hash';
  if (isId(word)) return 'id';
  return isSymbol(word) ? 'symbol' : null;
}

function isPath(word: string): boolean {
  if (word.length > 200 || !/^[\w./@+~-]+$/.test(word) || !/[A-Za-z]/.test(word) || word.includes('//'))
    return false;
  const ending = /^.*\w\.([A-Za-z0-9]{1,8})$/.exec(word)?.[1]?.toLowerCase();
  const endsLikeFile = ending !== undefined && endings.has(ending);
  const slashes = word.split('/').length - 1;
  if (slashes === 0) return endsLikeFile;
  return endsLikeFile || slashes >= 2 || (/^(?:\/|\.{1,2}\/|~\/)/.test(word) && /[A-Za-z]{2}/.test(word));
}

function isId(word: string): boolean {
  if (/^#\d{3,20}$/.test(word) || /^\d{5,20}$/.test(word)) return true;
  return (
    word.length >= 5 &&
    /^#?[A-Za-z0-9][A-Za-z0-9_-]{3,79}$/.test(word) &&
    /\d/.test(word) &&
    /[A-Za-z]/.test(word) &&
    !/^\d+[A-Za-z]{1,3}$/.test(word)
  );
}

function isSymbol(word: string): boolean {
  if (word.length < 6 || word.length > 80 || /\d/.test(word) || !/^[A-Za-z_][\w.]*$/.test(word)) return false;
  return (
    /[A-Za-z]_[A-Za-z]/.test(word) || /[a-z][A-Z]/.test(word) || /^[A-Za-z_]+(?:\.[A-Za-z_]+){2,}$/.test(word)
  );
}
