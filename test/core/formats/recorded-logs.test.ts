/** Every recorded log of an agent is read, shown to its provider in a valid form, and exported unchanged. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { contextFormatOf, formatOf } from '../../../src/formats/index.js';
import type { FileLayout } from '../../../src/formats/format.js';
import type { FormatName } from '../../../src/conversation/format-names.js';
import type { Json } from '../../../src/conversation/message.js';
import { warningsOf } from '../../../src/conversation/validate.js';
import { validateView } from '../../../src/context/view/validity.js';
import { itemsOf, logged, shown } from '../../support/formats.js';
import { skipWithoutTranscripts } from '../../support/transcripts.js';
import { closeDocument } from '../../../src/formats/documents.js';
import { fileText } from '../../support/native-files.js';
import { each, joined } from '../../support/texts.js';

const native = skipWithoutTranscripts() ? null : join(process.env.PALIMPSEST_TRANSCRIPTS!, 'native');

const folders: Partial<Record<string, FormatName>> = {
  'anthropic-messages': 'anthropic',
  'claude-code': 'claude-code',
  'gemini-cli': 'gemini-cli',
  'google-adk': 'google-adk',
  'chatgpt-export': 'chatgpt',
  cline: 'cline',
};

/** How many messages each file means, and what is odd among them. */
const meaning: Record<string, [number, string[]]> = {
  'anthropic-messages/vercel+ai--anthropic-compaction.1.json': [1, []],
  // Thoughts by themselves are no message; nothing else of them is said.
  'chatgpt-export/Sinity+polylogue--native-conversation-v1.json': [7, ['empty_turn', 'empty_turn']],
  'claude-code/daaain+claude-code-log--edge_cases.jsonl': [12, ['unanswered_call', 'unanswered_call']],
  'claude-code/daaain+claude-code-log--representative_messages.jsonl': [11, []],
  'claude-code/jnarowski+agentcmd--full-session-four.jsonl': [63, []],
  'claude-code/jnarowski+agentcmd--full-session-two.jsonl': [30, []],
  'claude-code/marot+spotter--258c7280--agent-acompact-fffbd0.jsonl': [4, []],
  'claude-code/marot+spotter--258c7280-ae70-4798-800f-63464d01a85d.jsonl.gz': [344, []],
  'claude-code/marot+spotter--4d5611e5--agent-a2898e3.jsonl': [46, []],
  'claude-code/marot+spotter--short.jsonl': [5, []],
  'cline/cline+cline--basic.compaction.json': [11, []],
  'cline/cline+cline--session.messages.json': [33, []],
  'gemini-cli/jnarowski+agentcmd--session-2025-10-27T19-55-981c87cb.json': [31, []],
  // Calls without ids are numbered by name within each content.
  'google-adk/google+adk-python--sample.session.json': [9, ['reused_id']],
};

interface Recorded {
  file: string;
  format: FormatName;
}

const recorded =
  native === null
    ? []
    : readdirSync(native).flatMap((folder): Recorded[] => {
        const format = folders[folder];
        if (!format) return [];
        return readdirSync(join(native, folder)).map((file) => ({ file: `${folder}/${file}`, format }));
      });

function read(file: string): { document: Json; layout: FileLayout } {
  const bytes = readFileSync(join(native!, file));
  const text = (file.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString('utf8');
  if (!/\.jsonl(?:\.gz)?$/.test(file)) return { document: JSON.parse(text), layout: 'document' };
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  return { document: lines.map((line): Json => JSON.parse(line)), layout: 'lines' };
}

describe.skipIf(recorded.length === 0)('recorded logs', () => {
  it.for(recorded)('$file is imported, shown and exported without a loss', async ({ file, format }) => {
    const { document, layout } = read(file);
    const { open, contextFormat } = formatOf(format);
    const { items, id } = open!(document, layout)!;
    expect(await joined(closeDocument(each(items), format))).toBe(fileText(document, layout));
    const log = logged([items], format);
    expect(itemsOf(log)).toEqual(items);
    if (format !== 'anthropic') expect(id).toMatch(/./);
    for (const provider of new Set([contextFormat, 'anthropic', 'gemini'] as const))
      expect(contextFormatOf(provider).violations(shown(log, provider)), provider).toEqual([]);
    expect(validateView(shown(log, 'openai-chat').messages as never)).toEqual([]);
    const odd = warningsOf(log.map(({ message }) => message)).map(({ type }) => type);
    expect([log.length, odd]).toEqual(meaning[file]);
  });
});
