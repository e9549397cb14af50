import { invalid } from '../errors.js';
import type { ChatMessage, Json } from '../conversation/message.js';
import { fieldsAt, isFields, textOr, unitsOf } from './content.js';
import { envelopeOf, listAt, openLists } from './envelope.js';
import type { Format, Opened } from './format.js';
import { readMessage } from './langchain-messages.js';
import { renderLangchain, withCallIds } from './langchain.js';

/**
 * Recorded runs of DeerFlow: a prompt and the turns of its models, each an answer as a LangChain message. The conversation
 * consists of the lead agent's answers; titles and suggestions, which other callers requested, are kept but stand for no
 * message. The recording contains no tool results, so its calls are shown as unanswered.
 */
export const deerFlow: Format = {
  name: 'deer-flow',
  title: 'DeerFlow recording',
  contextFormat: 'langchain',
  normalize: (items, path) =>
    unitsOf(items.map((item, index) => ({ items: [item], messages: messagesOf(item, `${path}[${index}]`) }))),
  requestItems(items, messages) {
    const answers = items.flatMap((item) => (isFields(item) && isLead(item.caller) ? [item.output!] : []));
    const shown = answers.length === messages.length ? withCallIds(answers, messages) : null;
    return shown ?? renderLangchain([{ items: null, messages: [...messages] }]).messages;
  },
  open(document): Opened | null {
    if (!isFields(document) || typeof document.prompt !== 'string') return null;
    const turns = listAt(document, ['turns']);
    if (
      !turns?.items.every(
        (turn) => isFields(turn) && typeof turn.caller === 'string' && isFields(turn.output),
      )
    )
      return null;
    const id = textOr(document.scenario);
    return { ...(id === '' ? {} : { id }), items: openLists(document, [turns], { prompt: document.prompt }) };
  },
};

const isLead = (caller: Json | undefined): boolean => caller === 'lead_agent';

function messagesOf(item: Json, path: string): ChatMessage[] {
  const fields = envelopeOf(item);
  if (fields) {
    const prompt = textOr(fields.prompt);
    return prompt === '' ? [] : [{ role: 'user', content: prompt }];
  }
  const turn = fieldsAt(item, path);
  if (typeof turn.caller !== 'string' || turn.output === undefined)
    throw invalid(
      `${path} must be a turn with caller and output.`,
      path,
      'e.g. {"caller": "lead_agent", "output": …}',
    );
  if (!isLead(turn.caller)) return [];
  const message = readMessage(turn.output, `${path}.output`);
  return message ? [message] : [];
}
