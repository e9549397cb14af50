import type { ChatMessage, ContentPart, Json, ToolCall } from '../conversation/message.js';
import {
  assistantMessage,
  contentOf,
  fieldsAt,
  isFields,
  itemAt,
  mustBe,
  placeholder,
  stringAt,
  textOr,
  textPart,
  unitsOf,
  type Fields,
} from './content.js';
import { envelopeOf } from './envelope.js';
import type { Format, Opened } from './format.js';

/**
 * Event streams of OpenHands (`openhands/events`): actions of user and agent, and the resulting observations. An action made by
 * a tool call carries the model's whole answer. It is shown with only its own call; the first action also has the model's text.
 * Events about the agent's state, and those that only acknowledge a message, are kept but stand for no message.
 */
export const openhands: Format = {
  name: 'openhands',
  title: 'OpenHands events',
  contextFormat: 'openai-chat',
  normalize: (items, path) =>
    unitsOf(
      items.map((item, index) => {
        const messages = envelopeOf(item) ? [] : messagesOf(item, `${path}[${index}]`);
        return itemAt(item, messages, isFields(item) ? item.timestamp : undefined);
      }),
    ),
  open(document): Opened | null {
    if (!Array.isArray(document) || document.length === 0) return null;
    return document.every((event) => isFields(event) && isEvent(event)) ? { items: document } : null;
  },
};

const isEvent = (event: Fields): boolean =>
  typeof event.source === 'string' &&
  (typeof event.action === 'string' || typeof event.observation === 'string');

const silentActions = /^(?:change_agent_state|null|recall|condensation|condensation_request)$/;
const silentObservations = /^(?:agent_state_changed|null|recall)$/;

function messagesOf(value: Json, path: string): ChatMessage[] {
  const event = fieldsAt(value, path);
  if (typeof event.action !== 'string' && typeof event.observation !== 'string')
    throw mustBe('a string', event.action, `${path}.action`, 'An event has an action or an observation.');
  if (typeof event.observation === 'string') return observed(event, event.observation, path);
  const action = stringAt(event.action, `${path}.action`);
  if (silentActions.test(action)) return [];
  const args = isFields(event.args) ? event.args : {};
  if (action === 'system') return [{ role: 'system', content: textOr(args.content) }];
  if (event.source !== 'agent')
    return [{ role: 'user', content: contentOf(partsOfMessage(event, args, action)) }];
  if (isFields(event.tool_call_metadata))
    return [answered(event.tool_call_metadata, `${path}.tool_call_metadata`)];
  return [assistantMessage(partsOfMessage(event, args, action))];
}

function partsOfMessage(event: Fields, args: Fields, action: string): ContentPart[] {
  if (action !== 'message') {
    const thought = textOr(args.thought);
    const { thought: _thought, ...rest } = args;
    return [...(thought === '' ? [] : [textPart(thought)]), placeholder(action, rest)];
  }
  const text = textOr(args.content) || textOr(event.message);
  const urls = Array.isArray(args.image_urls) ? args.image_urls : [];
  return [
    ...(text === '' ? [] : [textPart(text)]),
    ...urls.map((url): ContentPart => ({ type: 'image_url', image_url: { url: textOr(url) } })),
  ];
}

/** Returns the call of this action; the first call of an answer also gets the text before it. */
function answered(metadata: Fields, path: string): ChatMessage {
  const response = isFields(metadata.model_response) ? metadata.model_response : {};
  const [choice] = Array.isArray(response.choices) ? response.choices : [];
  const message = isFields(choice) && isFields(choice.message) ? choice.message : {};
  const calls = Array.isArray(message.tool_calls) ? message.tool_calls.filter(isFields) : [];
  const id = textOr(metadata.tool_call_id);
  const at = calls.findIndex((call) => call.id === id);
  const name = stringAt(metadata.function_name, `${path}.function_name`);
  const called = isFields(calls[at]?.function) ? calls[at].function : {};
  const call: ToolCall = {
    id,
    type: 'function',
    function: { name: name || 'unknown_tool', arguments: textOr(called.arguments, '{}') },
  };
  if (at > 0) return assistantMessage([], [call]);
  const text = textOr(message.content);
  return assistantMessage(text === '' ? [] : [textPart(text)], [call], textOr(message.reasoning_content));
}

function observed(event: Fields, observation: string, path: string): ChatMessage[] {
  if (silentObservations.test(observation)) return [];
  const { content } = event;
  if (content !== undefined && content !== null && typeof content !== 'string')
    throw mustBe('a string', content, `${path}.content`);
  const metadata = event.tool_call_metadata;
  if (!isFields(metadata)) return [{ role: 'user', content: textOr(content) || textOr(event.message) }];
  const id = textOr(metadata.tool_call_id);
  const name = textOr(metadata.function_name);
  return [
    {
      role: 'tool',
      ...(id === '' ? {} : { tool_call_id: id }),
      ...(name === '' ? {} : { name }),
      content: textOr(content),
    },
  ];
}
