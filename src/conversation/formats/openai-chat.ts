import type { ChatMessage, Json } from '../message.js';
import { checkMessages } from '../validate.js';
import { validateView } from '../validity.js';
import type { RequestFormat } from './format.js';

/** OpenAI chat completions: the form in which every log is stored. */
export const openaiChat: RequestFormat = {
  name: 'openai-chat',
  title: 'OpenAI chat completions',
  contextFormat: 'openai-chat',
  normalize: (items, path) =>
    checkMessages(items, path).map((message) => ({
      items: [message as unknown as Json],
      messages: [message],
    })),
  render: (units) => ({ messages: units.flatMap(({ messages }) => messages as unknown as Json[]) }),
  violations: ({ messages }) => validateView(messages as unknown as ChatMessage[]),
};
