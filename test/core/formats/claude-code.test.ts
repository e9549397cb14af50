/** Logs of Claude Code are trees of lines: a rewind leaves a branch behind, parallel calls and hooks do not. */
import { describe, expect, it } from 'vitest';
import { contextFormatOf, formatOf } from '../../../src/formats/index.js';
import type { Json } from '../../../src/conversation/message.js';
import { textOf } from '../../../src/conversation/validate.js';
import { itemsOf, logged, shown } from '../../support/formats.js';
import { closeDocument } from '../../../src/formats/documents.js';
import { fileText } from '../../support/native-files.js';
import { each, joined } from '../../support/texts.js';

const line = (
  uuid: string,
  parentUuid: string | null,
  type: string,
  content: Json,
  more: object = {},
): Json => ({
  ...{ type, uuid, parentUuid, sessionId: 's-1', isSidechain: false, timestamp: 't' },
  message: { role: type, content, ...(type === 'assistant' ? { id: `msg_${uuid}` } : {}) },
  ...more,
});

const ask = (uuid: string, parent: string | null, more?: object) =>
  line(uuid, parent, 'user', `ask ${uuid}`, more);

const says = (uuid: string, parent: string) =>
  line(uuid, parent, 'assistant', [{ type: 'text', text: `say ${uuid}` }]);

const calls = (uuid: string, parent: string, id: string) =>
  line(uuid, parent, 'assistant', [{ type: 'tool_use', id, name: 'Read', input: {} }], {
    message: {
      role: 'assistant',
      id: 'msg_calls',
      content: [{ type: 'tool_use', id, name: 'Read', input: {} }],
    },
  });

const result = (uuid: string, parent: string, id: string) =>
  line(uuid, parent, 'user', [{ type: 'tool_result', tool_use_id: id, content: `output ${id}` }]);

const hook = (uuid: string, parent: string): Json => ({
  type: 'progress',
  uuid,
  parentUuid: parent,
  sessionId: 's-1',
});

function said(...lines: Json[]): string[] {
  const log = logged([lines], 'claude-code');
  expect(itemsOf(log)).toEqual(lines);
  const rendered = shown(log, 'anthropic');
  expect(contextFormatOf('anthropic').violations(rendered)).toEqual([]);
  const texts = log.map((one) => textOf(one.message)).filter(Boolean);
  const request = JSON.stringify(rendered.messages);
  for (const text of texts) expect(request).toContain(text);
  const others = lines.flatMap((one) => JSON.stringify(one).match(/(?:ask|say|output) \w+/g) ?? []);
  for (const text of others.filter((one) => !texts.includes(one))) expect(request).not.toContain(text);
  return texts;
}

describe('a log of Claude Code', () => {
  it('does not show rewound lines, and keeps them', () => {
    expect(
      said(
        ...[
          ask('1', null),
          says('2', '1'),
          ask('3', '2'),
          says('4', '3'),
          hook('h', '4'),
          ask('5', 'h'),
          says('6', '5'),
        ],
        ...[ask('7', '2'), says('8', '7')],
      ),
    ).toEqual(['ask 1', 'say 2', 'ask 7', 'say 8']);
  });

  it('may be rewound twice, and to its first prompt', () => {
    expect(
      said(ask('1', null), says('2', '1'), ask('3', '2'), ask('4', '2'), ask('5', '2'), says('6', '5')),
    ).toEqual([...['ask 1', 'say 2', 'ask 5', 'say 6']]);
    expect(said(ask('1', null), says('2', '1'), ask('3', null), says('4', '3'))).toEqual(['ask 3', 'say 4']);
  });

  it('keeps results of parallel calls, whose lines fork the chain, and prompts that came between them', () => {
    const lines = [
      ...[ask('1', null), calls('2', '1', 'a'), calls('3', '2', 'b'), hook('h', '2')],
      ...[result('4', '2', 'a'), result('5', '3', 'b'), ask('6', '4'), says('7', '5'), ask('8', '7')],
    ];
    expect(said(...lines)).toEqual(['ask 1', 'output a', 'output b', 'ask 6', 'say 7', 'ask 8']);
  });

  it('continues after a compaction, whose summary begins at the root again', () => {
    const boundary: Json = {
      ...{ type: 'system', subtype: 'compact_boundary', uuid: 'b', parentUuid: null, logicalParentUuid: '2' },
      sessionId: 's-1',
    };
    const summary = line('s', 'b', 'user', 'ask summary', { isCompactSummary: true });
    expect(said(ask('1', null), says('2', '1'), boundary, summary, ask('3', null), says('4', '3'))).toEqual([
      ...['ask 1', 'say 2', 'ask summary', 'ask 3', 'say 4'],
    ]);
  });

  it('counts a line once that was written twice, and takes lines without links in their order', () => {
    expect(said(ask('1', null), says('2', '1'), ask('1', null), says('2', '1'), ask('3', '2'))).toEqual([
      ...['ask 1', 'say 2', 'ask 3'],
    ]);
    expect(said(ask('1', null), says('2', 'gone'), ask('3', null), ask('4', 'elsewhere'))).toEqual([
      ...['ask 1', 'say 2', 'ask 3', 'ask 4'],
    ]);
  });

  it('is imported, and exported unchanged', async () => {
    const lines = [ask('1', null), says('2', '1'), ask('3', '2'), ask('4', '2')];
    const opened = formatOf('claude-code').open!(lines, 'lines')!;
    const text = await joined(closeDocument(each(opened.items), 'claude-code'));
    expect(text).toBe(fileText(lines, 'lines'));
  });
});
