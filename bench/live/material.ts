/** The live and the imported sessions: recorded ones if PALIMPSEST_TRANSCRIPTS names a folder, else generated from a seed. */
import type { ChatMessage } from '../../src/conversation/message.js';
import { cutTurns } from '../../src/conversation/groups.js';
import { readTranscripts } from '../../test/support/transcripts.js';
import { agentTurns } from '../conversation.js';

/** Small, so that a session of some thousand tokens is due. */
export const window = 6_000;
/** Arguments are not truncated before the trigger: `due` then means that there is something to summarize. */
export const livePolicy = { contextWindow: window, reduce: { arguments: { from: 1 } } };
/** Recorded sessions that are taken: of some length, of messages of some length, none of which fills the window. In characters. */
const shortestScript = 12_000;
const meanMessage = 400;
const longestMessage = 8_000;
/** Characters of an old session: over its threshold, so that a backfill has something to do. */
const oldSession = 24_000;
/** Characters that a live session begins with: each is due after some turns more. */
const head = 12_000;
/** Turns of a live session after that. */
const liveTurns = 60;

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
    const size = sizeOf(messages);
    const longest = Math.max(...messages.map((message) => sizeOf([message])));
    if (size >= shortestScript && size / messages.length >= meanMessage && longest <= longestMessage)
      scripts.push(inTurns(messages));
  }
  if (scripts.length > 0) return { scripts, source: `${scripts.length} recorded sessions` };
  const made = Array.from({ length: 40 }, (_, seed) => inTurns(agentTurns(40, 120, seed + 1).flat()));
  return { scripts: made, source: 'sessions made from a seed' };
}

const inTurns = (messages: ChatMessage[]): Script =>
  cutTurns(messages).map(({ from, to }) => messages.slice(from, to));

const sizeOf = (messages: readonly ChatMessage[]): number =>
  messages.reduce((sum, message) => sum + JSON.stringify(message).length, 0);

export const oldSessionId = (index: number): string => `old-${String(index).padStart(6, '0')}`;

/** A recorded session as long as it must be, from a turn on that differs, under another id. */
export function oldSessionOf({ scripts }: Material, index: number): { id: string; messages: ChatMessage[] } {
  const id = oldSessionId(index);
  const turns = endless(scripts[index % scripts.length]!, id, Math.floor(index / scripts.length));
  return { id, messages: taken(turns, oldSession) };
}

/** A live session: its first messages, then its turns. */
export function liveSessionOf({ scripts }: Material, index: number, id: string): Script {
  const turns = endless(scripts[index % scripts.length]!, id, index);
  const begun = taken(turns, head * Math.random());
  return [begun, ...Array.from({ length: liveTurns }, () => turns.next().value)].filter(
    ({ length }) => length > 0,
  );
}

function taken(turns: Iterator<ChatMessage[], never>, size: number): ChatMessage[] {
  const messages: ChatMessage[] = [];
  while (sizeOf(messages) < size) messages.push(...turns.next().value);
  return messages;
}

/** The system message, then turn after turn, from the first again after the end of the recording; users name the session. */
function* endless(script: Script, id: string, from: number): Generator<ChatMessage[], never> {
  const isSystem = ({ role }: ChatMessage): boolean => role === 'system' || role === 'developer';
  const system = script[0]!.filter(isSystem);
  for (let turn = from, first = true; ; turn++, first = false) {
    const messages = script[turn % script.length]!.filter((message) => !isSystem(message));
    const named = messages.map((message) => tagged(message, id));
    if (first) yield [...system, { role: 'user', content: `This is session ${id}.` }, ...named];
    else if (named.length > 0) yield named;
  }
}

function tagged(message: ChatMessage, id: string): ChatMessage {
  if (message.role !== 'user' || typeof message.content !== 'string') return message;
  return { ...message, content: `${message.content}\n(${id})` };
}
