import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { readTranscripts } from '../../src/cli/play/transcripts.js';
import type { ChatMessage } from '../../src/conversation/message.js';
import type { TokenCounter } from '../../src/tokens/counter.js';
import { countMessage } from '../../src/tokens/message.js';

/** Recorded sessions with their family, for the bench; in two halves by a hash of the id, of which one is for tuning. */
export interface Recorded {
  id: string;
  family: string;
  /** `tuning` sessions were used while exact values were improved, `held out` ones were not. */
  half: 'tuning' | 'held out';
  messages: ChatMessage[];
  /** Tokens of each message, framing included. */
  tokens: number[];
  total: number;
}

/** Sessions of at least so many tokens are scored: shorter ones are never compacted at any usual window. */
export const SMALLEST_SESSION = 4_000;

/** Sessions of people, without an agent and under a separate licence. */
const dialogues = new Set(['long-human-dialog', 'concat-human-dialog']);

/** Every scored session of a folder laid out like the recorded data, by id. */
export async function recordedSessions(folder: string, counter: TokenCounter): Promise<Recorded[]> {
  const families = familiesOf(folder);
  const sessions: Recorded[] = [];
  for (const kind of ['sessions', 'dirty', 'cc-by-nc']) {
    const files = readdirSync(path.join(folder, kind)).filter(
      (name) => /\.jsonl(\.gz)?$/.test(name) && !name.startsWith('qa-'),
    );
    for (const file of files.sort()) {
      for (const read of await readTranscripts(path.join(folder, kind, file))) {
        if ('error' in read) throw read.error;
        const family = families.get(read.id) ?? file.replace(/\.jsonl(\.gz)?$/, '');
        if (dialogues.has(family)) continue;
        const tokens = read.messages.map((message) => countMessage(message, counter));
        const total = tokens.reduce((sum, size) => sum + size, 0);
        if (total < SMALLEST_SESSION) continue;
        sessions.push({ id: read.id, family, half: halfOf(read.id), messages: read.messages, tokens, total });
      }
    }
  }
  return sessions.sort((a, b) => (a.id < b.id ? -1 : 1));
}

function familiesOf(folder: string): Map<string, string> {
  const lines = readFileSync(path.join(folder, 'index.jsonl'), 'utf8').split('\n');
  const entries = lines
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as { id: string; family: string });
  return new Map(entries.map(({ id, family }) => [id, family]));
}

function halfOf(id: string): Recorded['half'] {
  return createHash('sha256').update(`half ${id}`).digest()[0]! % 2 === 0 ? 'tuning' : 'held out';
}
