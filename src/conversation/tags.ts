/** Escapes text that spells one of this product's tags, so that neither a model nor a decoder reads it as a tag. */

/** The names of all tags that prompts and heads put around data. */
const tagNames =
  'messages?|call|media|transcript|digest|previous[\\s_-]?snapshot|state[\\s_-]?snapshot|pins?';
/**
 * The name of a tag, as it follows the bracket. A text with white space before the name is a tag only if it also ends like one:
 * `i < messages.length` does not.
 */
const tag = new RegExp(
  `^(?:\\s*/[\\s/]*)?(?:${tagNames})(?![a-z0-9])|^\\s+(?:${tagNames})(?:\\s[\\w\\s="':-]{0,80})?>`,
  'i',
);

/** An opening bracket: plain, in another width, or as HTML, JSON and URLs write it, escaped any number of times. */
const bracket = new RegExp(
  [
    '[<\\uFF1C\\uFE64\\u2039\\u2329\\u27E8\\u3008\\u276E\\u02C2]',
    `&(?:amp;|#0*38;|#x0*26;){0,9}(?:lt|${entities('<')}|${entities('\uFF1C')})(?![a-z0-9]);?`,
    `&(?:amp;|#0*38;|#x0*26;){0,9}(?:lsaquo|lang|langle|${[...'\u2039\u2329\u27E8\u3008'].map(entities).join('|')});`,
    '\\\\+(?:u003c|uff1c|x3c|u\\{0*3c\\})',
    '%(?:25){0,9}3c',
  ].join('|'),
  'giu',
);

function entities(character: string): string {
  const code = character.charCodeAt(0);
  return `#0*${code}|#x0*${code.toString(16)}`;
}

/**
 * Characters that may begin a tag's name, or a text that `plainly` turns into one. Any other character after a bracket begins
 * no tag.
 */
const mayBegin = /[cdlmpst&\\%/]|[^\0-\x7F]/i;

/** A name in plain letters, with the character that ends it: nothing in it needs `plainly`. */
const plainName = /^\/?[a-z][\w-]{0,60}[\s>/="'.,:;]/i;

/** Letters and symbols of other scripts that are invisible. */
const invisible = '\\u115F\\u1160\\u2800\\u3164\\uFFA0';
/** Any number of invisible characters, with at most one slash among them. */
const lead = new RegExp(`[\\s${invisible}\\p{Cf}\\p{Cc}]*/?[\\s${invisible}\\p{Cf}\\p{Cc}]*`, 'uy');
/** Characters examined from the start of a name; invisible ones may separate its letters. */
const REACH = 160;
const invisibles = new RegExp(`[${invisible}]`, 'gu');

/**
 * Replaces the opening bracket of every text that spells one of these tags, also in similar letters, by `[`; all other text
 * stays unchanged. Idempotent.
 */
export function escapeTags(text: string): string {
  return text.replace(bracket, (found: string, at: number) => {
    lead.lastIndex = at + found.length;
    const before = lead.exec(text)?.[0] ?? '';
    const from = at + found.length + before.length;
    if (!mayBegin.test(text.charAt(from))) return found;
    const after = shortened(before) + text.slice(from, from + REACH);
    return tag.test(plainName.test(after) ? after : plainly(after)) ? '[' : found;
  });
}

function shortened(before: string): string {
  if (before.length <= REACH) return before;
  return before.includes('/') ? '/' : /\s/.test(before) ? ' ' : '';
}

/** The text as a reader sees it: entities and escapes decoded, similar letters unified, invisible characters removed. */
function plainly(text: string): string {
  return text
    .replace(/&(?:amp;)*#(x?)([0-9a-f]{1,6});?/gi, (_entity, hex: string, digits: string) => {
      const code = parseInt(digits, hex === '' ? 10 : 16);
      return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : '';
    })
    .replace(/&(?:amp;)*(sol|lowbar|nbsp|gt);?/gi, (_entity, name: string) => named[name.toLowerCase()] ?? '')
    .replace(/\\(?:u([0-9a-f]{4})|x([0-9a-f]{2})|u\{0*([0-9a-f]{1,4})\})/gi, (_escape, ...digits: string[]) =>
      String.fromCharCode(parseInt(digits[0] ?? digits[1] ?? digits[2] ?? '', 16)),
    )
    .replace(/%(2f|5f)/gi, (_escape, digits: string) => String.fromCharCode(parseInt(digits, 16)))
    .replace(/\\[nrt]/g, ' ')
    .replace(invisibles, ' ')
    .normalize('NFKD')
    .replace(/[\u2010-\u2015\u2212]/g, '-')
    .replace(/[\p{M}\p{Cf}\p{Cc}\\]/gu, (found) => (/\s/.test(found) ? ' ' : ''))
    .replace(/[\u2044\u2215\u29F8]/g, '/')
    .replace(/[^\0-\x7F]/g, (letter) => lookAlikes.get(letter.toLowerCase()) ?? letter);
}

const named: Record<string, string> = { sol: '/', lowbar: '_', nbsp: ' ', gt: '>' };

/** Cyrillic, Greek and other letters that look like those in the tags. */
const lookAlikes = new Map(
  [
    'aаɑα',
    'cсϲ',
    'dԁɗ',
    'eеҽ',
    'gɡց',
    'iіıι',
    'lӏⅼ',
    'mмⅿ',
    'nոп',
    'oоοօ',
    'pрρ',
    'rгⲅ',
    'sѕꜱ',
    'tтτ',
    'uսυ',
    'vνѵ',
  ]
    .map((letters) => [...letters])
    .flatMap(([latin = '', ...others]) => others.map((letter): [string, string] => [letter, latin])),
);
