/** Text that spells one of our tags must not be read as one: neither by a model, nor by whoever decodes it once more. */

/** Every tag that prompts and heads put around data. */
const ownTags = 'messages?|call|media|transcript|digest|previous[\\s_-]?snapshot|state[\\s_-]?snapshot|pins?';
/** With space before the name it is a tag where it ends as one: `i < messages.length` is none. */
const spelt = new RegExp(
  `^(?:\\s*/[\\s/]*)?(?:${ownTags})(?![a-z0-9])|^\\s+(?:${ownTags})(?:\\s[\\w\\s="':-]{0,80})?>`,
  'i',
);

/** An opening bracket as it is, in another width, or as HTML, JSON and URLs write it, escaped any number of times. */
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

/** The first letter of one of ours, or of something that has to be decoded; all else after a bracket is no tag. */
const mayBegin = /[cdlmpst&\\%/]|[^\0-\x7F]/i;

/** A name that ends before anything that would have to be decoded. */
const asItStands = /^\/?[a-z][\w-]{0,60}[\s>/="'.,:;]/i;

/** Characters of other scripts that show nothing, though they are letters or symbols. */
const blank = '\\u115F\\u1160\\u2800\\u3164\\uFFA0';
/** Any number of characters that show nothing, and a slash among them: nothing that a name consists of. */
const lead = new RegExp(`[\\s${blank}\\p{Cf}\\p{Cc}]*/?[\\s${blank}\\p{Cf}\\p{Cc}]*`, 'uy');
/** Characters looked at from where a name may begin; invisible ones may stand between its letters. */
const REACH = 160;
const blanks = new RegExp(`[${blank}]`, 'gu');

/**
 * The text with the bracket of every tag that spells one of ours, in any letters that look like it, as `[`; all else is
 * kept as it is. Idempotent.
 */
export function escapeTags(text: string): string {
  return text.replace(bracket, (found: string, at: number) => {
    lead.lastIndex = at + found.length;
    const before = lead.exec(text)?.[0] ?? '';
    const from = at + found.length + before.length;
    if (!mayBegin.test(text.charAt(from))) return found;
    const behind = shortened(before) + text.slice(from, from + REACH);
    return spelt.test(asItStands.test(behind) ? behind : plainly(behind)) ? '[' : found;
  });
}

function shortened(before: string): string {
  if (before.length <= REACH) return before;
  return before.includes('/') ? '/' : /\s/.test(before) ? ' ' : '';
}

/** As somebody reads it: entities and escapes decoded, letters of one look the same, what is not seen left out. */
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
    .replace(blanks, ' ')
    .normalize('NFKD')
    .replace(/[\u2010-\u2015\u2212]/g, '-')
    .replace(/[\p{M}\p{Cf}\p{Cc}\\]/gu, (found) => (/\s/.test(found) ? ' ' : ''))
    .replace(/[\u2044\u2215\u29F8]/g, '/')
    .replace(/[^\0-\x7F]/g, (letter) => lookAlikes.get(letter.toLowerCase()) ?? letter);
}

const named: Record<string, string> = { sol: '/', lowbar: '_', nbsp: ' ', gt: '>' };

/** Cyrillic, Greek and other letters with the shape of those in our tags. */
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
