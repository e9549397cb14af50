/** The type of a context if the caller names no type of an SDK. Compiled by `npm run check`, never run. */
import type { ChatMessage, NativeMessage, Palimpsest } from '../../src/index.js';
import type { HttpPalimpsest } from '../../src/http-client/index.js';

export async function defaults(palimpsest: Palimpsest | HttpPalimpsest): Promise<unknown[]> {
  const session = 's-1';
  const chat: ChatMessage[] = (await palimpsest.context({ session })).messages;
  const native: NativeMessage[] = (await palimpsest.context({ session, format: 'anthropic' })).messages;
  const { system } = await palimpsest.context({ session, format: 'gemini' });
  const instructions: string | undefined = system?.parts.map(({ text }) => text).join('\n');
  // @ts-expect-error Of another format than chat completions the default is no chat message.
  const mixed: ChatMessage[] = (await palimpsest.context({ session, format: 'gemini' })).messages;
  // @ts-expect-error Text is no message.
  await palimpsest.appendTurn({ session, turnId: 't-1', messages: 'Hello' });
  // @ts-expect-error Nor is an instance of a class.
  await palimpsest.appendTurn({ session, turnId: 't-1', messages: [new Date()] });
  return [chat, native, instructions, mixed];
}
