/** What is played live and what is imported: recorded sessions where PALIMPSEST_TRANSCRIPTS names them, else made from a seed. */
import type { ChatMessage } from '../../src/conversation/message.js';
import { cutTurns } from '../../src/conversation/turns.js';
import { readTranscripts } from '../../test/support/transcripts.js';
import { agentTurns } from '../conversation.js';

/** Small, so that a session of some thousand tokens is due. */
export const window = 4_000;
/** Longer messages would not fit beside anything else. */
const longestMessage = 3_500;
/** Characters of an old session: over its trigger, so that a backfill has something to do. */
const oldSession = 20_000;
const shortestScript = 16_000;

/** Turns of one session. */
export type Script = ChatMessage[][];

export interface Material {
  scripts: Script[];
  source: string;
}

export async function readMaterial(): Promise<Material> {
  const scripts: Script[] = [];
  for await (const { line, dirty } of readTranscripts()) {
    if (dirty) continue;
    const { messages } = JSON.parse(line) as { messages: ChatMessage[] };
    const turns = cutTurns(messages).map(({ from, to }) => messages.slice(from, to));
    const sizes = messages.map((message) => JSON.stringify(message).length);
    if (sizes.reduce((sum, size) => sum + size, 0) >= shortestScript && Math.max(...sizes) <= longestMessage)
      scripts.push(turns);
  }
  if (scripts.length > 0) return { scripts, source: `${scripts.length} recorded sessions` };
  const made = Array.from({ length: 40 }, (_, seed) =>
    agentTurns(40, 120, seed + 1).flatMap((turn) =>
      cutTurns(turn).map(({ from, to }) => turn.slice(from, to)),
    ),
  );
  return { scripts: made, source: 'sessions made from a seed' };
}

export const oldSessionId = (index: number): string => `old-${String(index).padStart(6, '0')}`;

/** A piece of a recorded session under another id, which its user messages name, so that no two are the same. */
export function oldSessionOf({ scripts }: Material, index: number): { id: string; messages: ChatMessage[] } {
  const id = oldSessionId(index);
  const script = scripts[index % scripts.length]!;
  const messages: ChatMessage[] = [];
  let size = 0;
  for (let turn = (index * 7) % script.length, taken = 0; size < oldSession; turn++, taken++) {
    // From the beginning again where the recording ends.
    for (const message of script[turn % script.length]!) {
      if (taken === 0 && message.role === 'tool') continue;
      const own = tagged(message, id);
      messages.push(own);
      size += JSON.stringify(own).length;
    }
  }
  return { id, messages };
}

export function tagged(message: ChatMessage, id: string): ChatMessage {
  if (message.role !== 'user' || typeof message.content !== 'string') return message;
  return { ...message, content: `${message.content}\n(${id})` };
}
