/**
 * Recorded files with erased messages: no text of them is in the export or in a context, every context is valid for its
 * provider, and the exported file can be opened again.
 */
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { contextFormats } from '../../../src/conversation/format-names.js';
import type { Json } from '../../../src/conversation/message.js';
import { textsIn } from '../../../src/conversation/tombstone.js';
import { textOf } from '../../../src/conversation/validate.js';
import { openDocument } from '../../../src/formats/documents.js';
import { contextFormatOf } from '../../../src/formats/index.js';
import { readNative } from '../../../src/formats/native.js';
import { storeSession } from '../../../src/import/store-session.js';
import { fitted } from '../../../src/library/context.js';
import { atOnce } from '../../../src/steps.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { readContextSource } from '../../../src/store/reading/context.js';
import { exportSession } from '../../../src/store/reading/replay.js';
import { eraseMessagesOf } from '../../../src/store/compactions/erase-messages.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { nativeFiles, readNativeFile } from '../../support/native-files.js';
import { openPool } from '../../support/pool.js';
import { newSession, replayed } from '../../support/store.js';
import { joined } from '../../support/texts.js';

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

/** Long texts that only these messages have. */
function ownTexts(all: readonly { seq: number; message: object }[], seqs: readonly number[]): string[] {
  const others = JSON.stringify(all.filter(({ seq }) => !seqs.includes(seq)).map(({ message }) => message));
  return all
    .filter(({ seq }) => seqs.includes(seq))
    .flatMap(({ message }) => textsIn(message))
    .filter((text) => text.length >= 20 && /\s/.test(text))
    .map((text) => JSON.stringify(text).slice(1, -1))
    .filter((text) => !others.includes(text));
}

describe.skipIf(files.length === 0)('recorded files', () => {
  it.each(files)('%s', async (file) => {
    const { value, layout } = readNativeFile(file);
    const isList = layout === 'lines' && /example_rollouts/.test(file);
    const opened = isList ? openDocument((value as Json[])[4]!, 'document') : openDocument(value, layout);
    const ids = newSession();
    await appendTurn(pool, {
      ...{ ...ids, turnId: 'all', format: opened.format, messages: opened.items },
      policy: { contextWindow: 2_000_000, tokenizer: 'chars/4' },
    });
    const all = await replayed(pool, ids);
    const user = all.find(({ message }) => message.role === 'user' && textOf(message).length > 20);
    const result = all.findLast(({ message }) => message.role === 'tool');
    const caller = all.find(({ message }) => message.role === 'assistant' && message.tool_calls);
    const found = [user, result, caller].flatMap((one) => (one ? [one.seq] : []));
    const seqs = [...new Set(found.length === 0 ? [1] : found)];
    const texts = ownTexts(all, seqs);
    const whole = await joined(exportSession(pool, ids));
    // The control: the file says what only these messages say.
    if (texts.length > 0) expect(texts.some((text) => whole.includes(text))).toBe(true);
    await eraseMessagesOf(pool, ids, { seqs, reason: null, at: new Date() });

    // The same file is complete when it comes again.
    const wholeFile = { ...readNative(opened.items, opened.format), format: opened.format };
    expect(await storeSession(pool, ids, wholeFile, { tenant: ids.tenant })).toMatchObject({
      status: 'present',
      added: 0,
    });
    const left = await replayed(pool, ids);
    expect(left.map(({ message: { role } }) => role)).toEqual(all.map(({ message: { role } }) => role));
    expect(left.flatMap(({ seq, erased }) => (erased ? [seq] : []))).toEqual([...seqs].sort((a, b) => a - b));
    const exported = await joined(exportSession(pool, ids));
    expect(texts.filter((text) => exported.includes(text))).toEqual([]);
    const read = await readContextSource(pool, ids, 'own');
    for (const shownAs of contextFormats) {
      const { context } = atOnce(fitted(ids.session, read, { format: shownAs }));
      const { messages: shown, system } = context as { messages: unknown[]; system?: Json };
      const rendered = { messages: shown as Json[], ...(system === undefined ? {} : { system }) };
      expect(contextFormatOf(shownAs).violations(rendered)).toEqual([]);
      const said = JSON.stringify(rendered);
      expect(said.split('This message was erased on').length - 1).toBeGreaterThanOrEqual(seqs.length);
      expect(texts.filter((text) => said.includes(text))).toEqual([]);
    }
    const again = exported.trim();
    const values = (
      layout === 'lines' && !isList ? again.split('\n').filter((line) => line !== '') : [again]
    ).map((line) => JSON.parse(line) as Json);
    const reopened = openDocument(
      layout === 'lines' && !isList ? values : values[0]!,
      isList ? 'document' : layout,
      opened.format,
    );
    expect(reopened.format).toBe(opened.format);
  });
});
