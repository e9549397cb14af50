/**
 * Every recorded file is opened in the format it is in, goes through a real store turn by turn, is shown in every format of a
 * request, and is exported unchanged, or is refused with the reason. The table shows the visible results of an import.
 */
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { classifyLine, openDocument } from '../../../src/formats/documents.js';
import { contextFormatOf, formatOf } from '../../../src/formats/index.js';
import { contextFormats, type FormatName } from '../../../src/conversation/format-names.js';
import type { Json } from '../../../src/conversation/message.js';
import { metaOf } from '../../../src/conversation/validate.js';
import { fitted } from '../../../src/library/context.js';
import { atOnce } from '../../../src/steps.js';
import { readContextSource } from '../../../src/store/reading/context.js';
import { exportSession } from '../../../src/store/reading/replay.js';
import { openPool } from '../../support/pool.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { fileText, nativeFiles, readNativeFile } from '../../support/native-files.js';
import { newSession } from '../../support/store.js';
import { joined } from '../../support/texts.js';

/** File → its format, and how many messages it has to show; where every line is a session, one number a line. */
const verdicts: Record<string, [FormatName, ...number[]]> = {
  'anthropic-messages/vercel+ai--anthropic-compaction.1.json': ['anthropic', 1],
  'chatgpt-export/Sinity+polylogue--native-conversation-v1.json': ['chatgpt', 5],
  'claude-code/daaain+claude-code-log--edge_cases.jsonl': ['claude-code', 12],
  'claude-code/daaain+claude-code-log--representative_messages.jsonl': ['claude-code', 11],
  'claude-code/jnarowski+agentcmd--full-session-four.jsonl': ['claude-code', 63],
  'claude-code/jnarowski+agentcmd--full-session-two.jsonl': ['claude-code', 30],
  'claude-code/marot+spotter--258c7280--agent-acompact-fffbd0.jsonl': ['claude-code', 4],
  'claude-code/marot+spotter--258c7280-ae70-4798-800f-63464d01a85d.jsonl.gz': ['claude-code', 344],
  'claude-code/marot+spotter--4d5611e5--agent-a2898e3.jsonl': ['claude-code', 46],
  'claude-code/marot+spotter--short.jsonl': ['claude-code', 5],
  'cline/cline+cline--basic.compaction.json': ['cline', 11],
  'cline/cline+cline--session.messages.json': ['cline', 33],
  'codex/jnarowski+agentcmd--rollout-2025-09-24T19-22-20-01997e76-d124-7592-9cac-2ec05abbca08.jsonl.gz': [
    'codex',
    270,
  ],
  'codex/jnarowski+agentcmd--rollout-2025-09-25T15-12-14-019982b8-3422-79e0-8b3b-05abaf4f3c3e.jsonl': [
    'codex',
    71,
  ],
  'deer-flow/bytedance+deer-flow--write_read_file.ultra.json': ['deer-flow', 4],
  'gemini-cli/jnarowski+agentcmd--session-2025-10-27T19-55-981c87cb.json': ['gemini-cli', 31],
  'google-adk/google+adk-python--sample.session.json': ['google-adk', 9],
  'langchain/langchain-ai+deepagents--summarization_seed_messages.json': ['langchain', 6],
  'openai-agents/openai+openai-agents-python--v1_13_pending_tool_approval.json': ['openai-agents', 2],
  'openai-responses/NVIDIA-NeMo+Gym--example_rollouts.jsonl': ['openai-responses', 5, 5, 7, 7, 7],
  'openai-responses/vercel+ai--openai-compaction.1.json': ['openai-responses', 1],
  'openhands-events/All-Hands-AI+OpenHands--basic_gui_mode.json': ['openhands', 10],
  'swe-agent/SWE-agent+SWE-agent--function_calling_simple.traj': ['swe-agent', 12],
};

const files = nativeFiles();
let database: TestDatabase;
let pool: Pool;

beforeAll(async () => {
  database = await createDatabase();
  pool = openPool(database.url);
});

afterAll(async () => {
  await pool.end();
  await database.drop();
});

/** Sessions of a file: itself, or each of its lines. */
function sessionsOf(file: string): { value: Json; layout: 'lines' | 'document' }[] {
  const { value, layout } = readNativeFile(file);
  const lines = layout === 'lines' ? (value as Json[]) : [];
  const each = lines.length > 0 && lines.every((line) => classifyLine(line)?.kind === 'session');
  return each ? lines.map((line) => ({ value: line, layout: 'document' })) : [{ value, layout }];
}

describe.skipIf(files.length === 0)('recorded files', () => {
  it('are all in the table', () => {
    expect(files).toEqual(Object.keys(verdicts).sort());
  });

  it.each(Object.entries(verdicts))('%s', async (file, [format, ...messages]) => {
    const sessions = sessionsOf(file);
    expect(sessions).toHaveLength(messages.length);
    for (const [index, { value, layout }] of sessions.entries()) {
      const opened = openDocument(value, layout);
      expect(opened.format).toBe(format);
      const said = formatOf(format)
        .normalize(opened.items, 'items')
        .flatMap((unit) => unit.messages.filter((message) => !metaOf(message).empty));
      expect(said).toHaveLength(messages[index]!);
      const ids = newSession();
      const each = Math.ceil(opened.items.length / 4);
      for (let from = 0; from < opened.items.length; from += each)
        await appendTurn(pool, {
          ...ids,
          turnId: `from ${from}`,
          format,
          messages: opened.items.slice(from, from + each),
          policy: { contextWindow: 2_000_000, tokenizer: 'chars/4' },
        });
      expect(await joined(exportSession(pool, ids))).toBe(fileText(value, layout));
      const read = await readContextSource(pool, ids, 'own');
      for (const shownAs of contextFormats)
        for (const budget of [undefined, 20_000]) {
          const { context } = atOnce(fitted(ids.session, read, { format: shownAs, budget }));
          const { messages: shown, system } = context as { messages: unknown[]; system?: Json };
          const rendered = { messages: shown as Json[], ...(system === undefined ? {} : { system }) };
          expect(contextFormatOf(shownAs).violations(rendered)).toEqual([]);
          expect(context.tokens).toBeLessThanOrEqual(budget ?? context.budget);
        }
    }
  });
});
