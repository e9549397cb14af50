/**
 * Facts declared obsolete: what a session says was renamed, deleted, replaced or is no longer in use, what a command
 * removed or moved, and a setting that was given another value. Said as done, about one exact atom, by user, assistant or
 * in a call, never by a tool's output; and whoever mentions the atom again later takes the declaration back.
 */
import type { ChatMessage } from '../../conversation/message.js';
import { argumentsOf } from '../../conversation/render.js';
import { wordAtoms } from './atoms.js';
import { commandIn } from './command.js';
import { plainTextOf, sentencesOf } from '../text/sentences.js';

/** A word that could be an atom, in quotes or without. */
const slot = '[`"\'\\u201C]?([^\\s`"\'\\u201C\\u201D,;]{3,160})[`"\'\\u201D]?';
const noun =
  '(?:(?:the|our|old|former|previous) )?(?:(?:file|folder|directory|module|function|class|method|table|column|branch|endpoint|key|variable|flag|version|service|script|test|package|host|server|url|path|id) )?';
const was = '(?:(?:was|were|is|are|has been|have been|got) )(?:now )?(?:just )?';
const gone =
  '(?:deleted|removed|dropped|renamed|replaced|superseded|retired|obsolete|outdated|decommissioned)';

/** Each finds the obsolete atom in its first group. */
const declarations = [
  new RegExp(`\\b(?:renamed|moved) ${noun}${slot} (?:in)?to `, 'gi'),
  new RegExp(`\\b(?:deleted|dropped|retired|decommissioned) ${noun}${slot}(?! from\\b)`, 'gi'),
  new RegExp(`\\bremoved ${noun}${slot}(?= (?:entirely|completely|altogether)|[.!:)]?$|, )`, 'gi'),
  new RegExp(`\\breplaced ${noun}${slot} (?:with|by) `, 'gi'),
  new RegExp(`\\b(?:use|using|uses|switched to|on) \\S{1,160} instead of ${noun}${slot}`, 'gi'),
  new RegExp(
    `\\bno longer (?:use|uses|using|need|needs|rely on|relies on|depend on|depends on) ${noun}${slot}`,
    'gi',
  ),
  new RegExp(`${slot} ${was}${gone}\\b(?! from\\b)`, 'gi'),
  new RegExp(
    `${slot} (?:is |are )?no longer (?:exists?|used|needed|valid|available|in use|applies)\\b`,
    'gi',
  ),
];
/** Any declaration holds one of these; most sentences hold none. */
const hint =
  /renamed|moved|deleted|dropped|removed|replaced|instead of|no longer|superseded|retired|obsolete|outdated|decommissioned/i;
/** Plans, wishes, conditions, questions and denials declare nothing. */
const notDone =
  /\?|\b(?:if|unless|whether|should|would|could|might|may|can|will|shall|must|please|want|wants|need to|needs to|going to|let me|let's|plan(?:s|ned)? to|not|never|isn't|wasn't|aren't|weren't|haven't|hasn't|didn't|don't|doesn't|won't|until|before|when|temporarily)\b/i;
const LONGEST_SENTENCE = 400;

export type ObsoleteVisitor = (atom: string) => void;

/** Atoms that one message declares obsolete. */
export function declaredObsolete(message: ChatMessage, visit: ObsoleteVisitor): void {
  if (message.role === 'tool' || message.role === 'function') return;
  for (const sentence of sentencesOf(plainTextOf(message))) {
    if (sentence.length <= LONGEST_SENTENCE && hint.test(sentence) && !notDone.test(sentence)) {
      for (const declaration of declarations)
        for (const match of sentence.matchAll(declaration)) wordOf(match[1], visit);
    }
  }
  for (const call of message.tool_calls ?? []) {
    const command = commandIn(argumentsOf(call));
    if (command !== null && command.length <= 4_000) removedBy(command, visit);
  }
}

function wordOf(word: string | undefined, visit: ObsoleteVisitor): void {
  const found: string[] = [];
  wordAtoms(word ?? '', (_kind, atom) => found.push(atom));
  if (found.length === 1 && found[0] !== undefined) visit(found[0]);
}

/** `rm` and `mv` as simple commands of a shell line; what a later part of the line names again is not gone. */
function removedBy(command: string, visit: ObsoleteVisitor): void {
  const parts = command.split(/&&|\|\||[;\n|]/);
  parts.forEach((part, index) => {
    const words = part.trim().split(/\s+/);
    if (words[0] === 'git' || words[0] === 'sudo') words.shift();
    const [program, ...rest] = words;
    if (program !== 'rm' && program !== 'mv' && program !== 'unlink') return;
    const operands = rest.filter((word) => !word.startsWith('-') && !/[*?$<>(){}]/.test(word));
    if (operands.length !== rest.filter((word) => !word.startsWith('-')).length) return;
    const later = parts.slice(index + 1).join(' ');
    const gone = program === 'mv' ? operands.slice(0, -1) : operands;
    for (const operand of gone) {
      const plain = operand.replace(/^["']|["']$/g, '');
      if (!later.includes(plain)) wordOf(plain, visit);
    }
  });
}

const setting = /(?<![\w?&])([A-Z][A-Z0-9]{0,30}(?:_[A-Z0-9]{1,30}){1,6})=["']?([^\s"'`;&|<>(){}$]{2,120})/g;

/** Settings such as `API_HOST=10.0.0.7` that one message gives, in order; a tool's listing sets nothing. */
export function settingsIn(message: ChatMessage, visit: (key: string, value: string) => void): void {
  if (message.role === 'tool' || message.role === 'function') return;
  const texts = [plainTextOf(message), ...(message.tool_calls ?? []).map(argumentsOf)];
  for (const text of texts) {
    if (!text.includes('=')) continue;
    for (const [, key, value] of text.matchAll(setting)) visit(key!, value!.replace(/[.,\\]+$/, ''));
  }
}
