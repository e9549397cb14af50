/** Shared by the benches on recorded sessions: the sessions, and a scripted model that writes the requested length. */
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { readTranscripts } from '../src/cli/play/transcripts.js';
import type { Summarizer } from '../src/compaction/in-memory/index.js';
import type { ChatMessage } from '../src/conversation/message.js';
import { counterFor } from '../src/tokens/counter.js';
import { saidOf } from '../test/support/material.js';

export const counter = counterFor('chars/4');

/** Every recorded session, however short; with `--quick` every sixth. */
export async function recordedSessions(): Promise<ChatMessage[][]> {
  const { values: options } = parseArgs({ options: { quick: { type: 'boolean', default: false } } });
  const folder = process.env.PALIMPSEST_TRANSCRIPTS;
  if (folder === undefined) {
    console.error('PALIMPSEST_TRANSCRIPTS names no folder of recorded sessions.');
    process.exit(2);
  }
  const sessions: ChatMessage[][] = [];
  for (const kind of ['sessions', 'dirty', 'cc-by-nc'])
    for (const file of readdirSync(path.join(folder, kind)).sort()) {
      if (!/\.jsonl(\.gz)?$/.test(file) || file.startsWith('qa-')) continue;
      for (const read of await readTranscripts(path.join(folder, kind, file)))
        if (!('error' in read)) sessions.push(read.messages);
    }
  return options.quick ? sessions.filter((_, index) => index % 6 === 0) : sessions;
}

/** Lines of the record, as many as were asked for, each with a reference. */
export function notesOn(material: string, maxTokens: number): string {
  const from = material.indexOf('<record ');
  const record = from < 0 ? material : material.slice(from, material.lastIndexOf('</record '));
  const said = record.split('\n').filter((line) => line.trim().length > 20);
  const lines = Math.max(3, Math.floor(maxTokens / 1.5 / 45));
  const step = Math.max(1, Math.floor(said.length / lines));
  const noted = said.filter((_, index) => index % step === 0).slice(0, lines);
  return `## Notes\n${noted.map((line) => `- ${line.trim().slice(0, 140)} [m1]`).join('\n')}\n\n## State\n- none`;
}

export const scriptedNotes: Summarizer = ({ messages, maxTokens }) =>
  notesOn(messages.at(-1)?.content ?? '', maxTokens);

/** A summary in sections. */
export const scriptedSummary: Summarizer = ({ messages, maxTokens }) => {
  const lines = Math.max(3, Math.floor(maxTokens / 3 / 25));
  const points = Array.from(
    { length: lines },
    (_, n) => `- step ${n + 1} of src/queue/worker-${n * 37}.ts stands as before`,
  );
  return saidOf(['## Current state', ...points].join('\n'), { messages });
};

export const percent = (part: number, whole: number): string => `${((100 * part) / whole).toFixed(1)} %`;
