/** What kind of text a model, or something that answered in its place, has written. Judged by wording; see accept.ts. */
import { hasSections, sections as builtIn, type Section } from './snapshot.js';

/** Why a text is no summary; null where nothing speaks against it. */
export function reasonAgainst(text: string, sections: readonly Section[] = builtIn): string | null {
  if (!/[\p{L}\p{N}]/u.test(text)) return 'is empty';
  if (isErrorBody(text)) return 'is an error body';
  if (/^<(!doctype|html|\?xml)\b/i.test(text)) return 'is a web page';
  if (hasSections(text, sections))
    return saysNothing(text, sections) ? 'has headings and nothing below them' : null;
  // What remains are judgments by wording. A long text that begins like a refusal is still a summary of one.
  if (text.length > LONGEST_JUDGED) return null;
  const plain = normalised(text);
  if (errors.some((wording) => wording.test(plain))) return 'is an error text';
  if (refusals.some((wording) => wording.test(plain))) return 'is a refusal';
  if (placeholders.some((wording) => wording.test(plain))) return 'is a placeholder';
  return null;
}

/** Characters. Refusals, with their explanations, and error texts stay below; a summary of that length says something. */
const LONGEST_JUDGED = 1_000;

function normalised(text: string): string {
  return text
    .replace(/[\u2018\u2019\u02BC]/g, "'")
    .replace(/[*_`>#]+/g, '')
    .replace(/\s+/g, ' ')
    .trim()
    .toLowerCase();
}

const cannot =
  "(?:can't|can ?not|could not|couldn't|won't|will not|am unable to|'m unable to|am not able to|'m not able to|am not allowed to|'m not allowed to|must decline to|have to decline to|do not feel comfortable|don't feel comfortable)";
/** What a refusing model says it will not do; "I cannot reproduce the bug" is not among it. */
const task =
  '(?:assist(?:ing)?|help(?:ing)?(?: you)?(?: with)?|comply(?:ing)?|fulfill?(?:ing)?|provid(?:e|ing)|continue|summari[sz](?:e|ing)|complet(?:e|ing) (?:this|that|your|the) (?:request|task)|engag(?:e|ing)|discuss(?:ing)?|creat(?:e|ing)|generat(?:e|ing)|process(?:ing)?|respond(?:ing)?|answer(?:ing)?|support(?:ing)?|participat(?:e|ing)|do (?:that|this)|proceed|accommodate|condens(?:e|ing))';
const given =
  '(?:transcripts?|conversations?|records?|texts?|contents?|messages?|documents?|history|material|data)';

const refusals: RegExp[] = [
  new RegExp(
    `^(?:(?:oh|well|hi|hello|unfortunately|sorry|apologies|i apologi[sz]e|i'?a?m (?:so |very |really )?sorry|i am (?:so |very |really )?sorry|i regret|i'm afraid|i am afraid)[^a-z]{0,4}(?:but |that |for [^.]{0,60}[,.] (?:but )?)?){0,3}(?:i|we|this assistant)(?: |(?='))(?:simply |really |just )?${cannot}(?: be able to)? (?:with |to )?${task}\\b`,
  ),
  /^(?:i'?m |i am )?(?:so |very |really )?sorry[,.!]?(?: but)? (?:that|this|the|your)? ?(?:request|content|prompt|conversation)?[^.]{0,60}(?:violates|against (?:my|our|the)|not (?:allowed|permitted|something i can))/,
  /^(?:i'?m |i am )?(?:so |very |really )?sorry[,.!]?(?: but)?(?: i)? ?(?:can't|cannot|can not|am unable)[^a-z]*(?:do (?:that|this|it))?[.!]?$/,
  /^(?:i'?m |i am )?(?:so |very |really )?sorry[,.!]*$/,
  new RegExp(
    `^as an? (?:ai|artificial intelligence|large language|language|text)\\b[^.]{0,60}(?:,|\\.| i )[^.]{0,40}(?:i|we)(?:'m| am| do| can| have|can't| don't| must| cannot)`,
  ),
  /^(?:i|we) (?:must|have to|need to|will have to) (?:respectfully )?(?:decline|refuse)\b/,
  /^(?:i'm not|i am not) (?:able|allowed|permitted|comfortable|going) (?:to|with|assist)\b/,
  /^(?:this|that|your|the) (?:request|content|prompt|conversation) (?:violates|goes against|is against|was (?:blocked|flagged|rejected|filtered))\b/,
  /^lo siento,? (?:pero )?no puedo\b/,
  /^(?:je suis )?désolée?,? (?:mais )?je ne (?:peux|suis)\b/,
  /^(?:es )?tut mir leid,? (?:aber )?(?:ich|dabei|das)\b/,
  /^(?:me )?desculpe,? (?:mas )?(?:eu )?não posso\b/,
  /^(?:非常)?(?:抱歉|对不起|對不起|很抱歉)[，,。 ]?(?:但)?(?:我)?(?:无法|無法|不能|没有办法)/,
  /^(?:申し訳(?:あり|ござい)ません|すみません)/,
  /^(?:죄송합니다|미안하지만)/,
  /^(?:извините|к сожалению),? (?:но )?я не могу\b/,
];

const ends = '(?=\\s*(?:$|[.:;,!(\\[{–—-]))';
const errors: RegExp[] = [
  /^(?:an? |the )?(?:unexpected |internal |unknown |unhandled )?error (?:was |has )?(?:generating|creating|producing|summari[sz]ing|calling|contacting|communicating|occurred|encountered)\b(?! in \S+\.\w+ (?:was|is|got))/,
  /^(?:failed|unable|could not|couldn't) to (?:generate|create|produce|obtain|get|complete) (?:a |the )?(?:summary|response|completion|answer)\b/,
  /^(?:http(?:\/\d(?:\.\d)?)? ?|status(?: code)? ?|error(?: code)?:? ?)[45]\d\d\b/,
  new RegExp(
    `^[45]\\d\\d:? (?:bad (?:request|gateway)|unauthori[sz]ed|payment required|forbidden|not found|request timeout|payload too large|too many requests|internal server error|service unavailable|gateway time-?out)${ends}`,
  ),
  new RegExp(
    `^(?:bad gateway|internal server error|service (?:temporarily )?unavailable|gateway time-?out|too many requests|unauthori[sz]ed|forbidden|no healthy upstream|(?:request|connection|read|operation) timed? ?out|connection (?:error|refused|reset(?: by peer)?|aborted)|fetch failed|network error|stream (?:error|disconnected|closed)|overloaded(?:_error)?|insufficient_quota|context_length_exceeded|rate_limit_exceeded|rate limit (?:exceeded|reached)|quota exceeded|invalid api key|(?:incorrect|missing|no) api key(?: provided)?)${ends}`,
  ),
  /^(?:you (?:have )?exceeded your current quota|rate limit (?:exceeded|reached) for\b|this model's maximum context length\b|the (?:model|server|engine|service) (?:is|`?\S{1,60}`?) (?:is )?(?:currently )?(?:overloaded|unavailable|not available|does not exist))/,
  /^upstream (?:connect error|request timeout)\b/,
  // One sentence that begins with the name of an error, and does not tell what became of it.
  /^(?:[a-z]{1,30}\.){0,5}[a-z]{0,40}(?:error|exception|failure)(?: code)?: (?!.*\b(?:user|agent|assistant|fixed|resolved)\b)(?:(?!\. ).){0,300}$/,
  /^traceback \(most recent call last\)/,
];

const placeholders: RegExp[] = [
  new RegExp(
    `^(?:there(?:'s| is) )?(?:nothing|no (?:${given}|information))(?: (?:was|were|has been|is))?(?: (?:to|that (?:can|could) be) (?:summari[sz]e|condense)d?| provided| given| found| available| here)\\b.{0,80}$`,
  ),
  new RegExp(
    `^(?:please|kindly|could you(?: please)?|can you(?: please)?) (?:provide|share|paste|upload|send|give)\\b[^.?]{0,60}\\b${given}`,
  ),
  new RegExp(
    `^(?:it (?:looks|seems|appears)(?: like| that)? |i (?:notice|see|think)(?: that)? |sorry, )?(?:you (?:haven't|have not|didn't|did not)|there (?:isn't|is not)|i (?:don't|do not|didn't) (?:see|have|find|receive)) (?:yet )?(?:provided?|included?|shared?|an?y?|the)\\b[^.]{0,60}\\b${given}`,
  ),
  /(?:^|[.!?] )(?:how (?:can|may) i (?:help|assist)|what (?:can i|would you like me to) (?:do|help)|let me know (?:if|how|what))[^.?!]{0,60}[.?!]$/,
  /^(?:previous |earlier )?(?:conversation|history|messages?|context)(?: history)? (?:was |were |is )?(?:too long to summari[sz]e|(?:has been )?(?:removed|omitted|truncated|compacted|trimmed))\.?$/,
  /^(?:\[?(?:summary|conversation summary|summary of (?:the|this) conversation|todo|tbd|placeholder|insert summary here|n\/a|none|null|undefined|nan|true|false|ok|okay|done|sure|yes|no|\.\.\.|string|text)(?: (?:unavailable|not available|goes here|here))?\]?)[.!:]?$/,
  /^\[object object\]$/,
];

const errorKeys = new Set(
  'error errors message msg code status statuscode status_code type detail details param object request_id requestid success ok timestamp path title instance trace_id'.split(
    ' ',
  ),
);

/** `{"error": …}` and its kin; a structured summary that has an `errors` list among other things is none. */
function isErrorBody(text: string): boolean {
  if (!text.startsWith('{') || !text.endsWith('}')) return false;
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return /^\{\s*"(?:error|detail)"\s*:/.test(text);
  }
  const keys = Object.keys(body as object).map((key) => key.toLowerCase());
  return keys.every((key) => errorKeys.has(key));
}

const nothing = /^(?:|none|n a|nothing|empty|null|tbd|todo|unknown)$/i;

function saysNothing(text: string, sections: readonly Section[]): boolean {
  return text
    .split('\n')
    .filter((line) => !hasSections(line, sections))
    .every((line) => nothing.test(line.replace(/[\s\p{P}\p{S}]+/gu, ' ').trim()));
}
