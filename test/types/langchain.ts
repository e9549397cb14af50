/** What LangChain sends and receives, without a cast. Compiled by `npm run check`, never run. */
import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import {
  type BaseMessage,
  type BaseMessageLike,
  mapChatMessagesToStoredMessages,
  mapStoredMessagesToChatMessages,
  type StoredMessage,
  ToolMessage,
} from '@langchain/core/messages';
import { callRecoveryTool, recoveryTools, type PalimpsestClient } from '../../src/index.js';

export async function stored(palimpsest: PalimpsestClient, model: BaseChatModel): Promise<void> {
  const of = { session: 's-1', format: 'langchain' } as const;
  const { messages } = await palimpsest.context<StoredMessage>(of);
  const answer = await model.bindTools!(recoveryTools).invoke(mapStoredMessagesToChatMessages(messages));
  const said: BaseMessage[] = [answer];
  for (const { id = '', name, args } of answer.tool_calls ?? []) {
    const content = await callRecoveryTool(palimpsest, of.session, name, args);
    said.push(new ToolMessage({ content, tool_call_id: id, name }));
  }
  const turn = { ...of, turnId: answer.id ?? 't-1' };
  await palimpsest.appendTurn({ ...turn, messages: mapChatMessagesToStoredMessages(said) });
  // @ts-expect-error An instance of a class is not what is stored.
  await palimpsest.appendTurn({ ...turn, messages: said });
}

export async function dictionaries(palimpsest: PalimpsestClient, model: BaseChatModel): Promise<void> {
  const { messages } = await palimpsest.context<BaseMessageLike>({ session: 's-1', format: 'langchain' });
  await model.invoke(messages);
}
