/** Properties of every format for any history: no item is lost, and every context is valid for its provider. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { contextFormatOf, formatOf } from '../../../src/formats/index.js';
import { contextFormats, type FormatName } from '../../../src/conversation/format-names.js';
import { buildView } from '../../../src/context/view/view.js';
import type { Json, LoggedMessage } from '../../../src/conversation/message.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { checkMessages } from '../../../src/conversation/validate.js';
import { itemsOf, logged, shown, shownChat } from '../../support/formats.js';
import { histories, sourceOf } from '../../support/histories.js';
import { sessions } from '../../support/random-sessions.js';
import { sized } from '../../support/size.js';
import type { Item } from '../../support/item-parts.js';
import {
  langchainHistories,
  modelMessageHistories,
  uiMessageHistories,
} from '../../support/library-histories.js';
import { codexHistories, responsesHistories } from '../../support/responses-histories.js';

const kinds: [string, FormatName, fc.Arbitrary<Item[]>][] = [
  ['OpenAI Responses', 'openai-responses', responsesHistories],
  ['Codex', 'codex', codexHistories],
  ['LangChain', 'langchain', langchainHistories],
  ['AI SDK (ModelMessage)', 'ai-sdk', modelMessageHistories],
  ['AI SDK (UIMessage)', 'ai-sdk', uiMessageHistories],
];

/** Results are in the order of their calls, as in a context. */
function isInOrder(log: LoggedMessage[]): boolean {
  const seqs = buildView(sourceOf(log), counterFor('chars/4')).map(({ fromSeq }) => fromSeq);
  return seqs.every((seq, index) => index === 0 || seq > seqs[index - 1]!);
}

/** One that is interrupted becomes a call like others: the API would wait for its end. */
function isProgramRunning(items: readonly Json[]): boolean {
  const of = (type: string) =>
    (items as Item[]).filter((item) => item.type === type).map((item) => item.call_id);
  const ended = of('program_output');
  return of('program').some((id) => !ended.includes(id));
}

const ownFormats = ['openai-responses', 'langchain', 'ai-sdk'] as const;

describe.each(kinds)('random histories of %s', (_title, format, arbitrary) => {
  const adapter = formatOf(format);
  const { contextFormat } = adapter;

  it('lose no item, and their meaning consists of valid chat messages', () => {
    fc.assert(
      fc.property(arbitrary, (items) => {
        const units = adapter.normalize(items, 'messages');
        expect(units.flatMap((unit) => unit.items)).toEqual(items);
        expect(units.every(({ messages }) => messages.length > 0)).toBe(true);
        checkMessages(units.flatMap(({ messages }) => messages));
        expect(itemsOf(logged([items], format))).toEqual(items);
      }),
      { numRuns: sized(100, 300) },
    );
  });

  it.each(contextFormats)('are valid as %s', (shownAs) => {
    fc.assert(
      fc.property(arbitrary, fc.nat(12), (items, at) => {
        const turns = [items.slice(0, at), items.slice(at)].filter((turn) => turn.length > 0);
        const rendered = shown(logged(turns, format), shownAs);
        expect(contextFormatOf(shownAs).violations(rendered)).toEqual([]);
      }),
      { numRuns: sized(100, 300) },
    );
  });

  it('change only at the end when more is appended', () => {
    fc.assert(
      fc.property(arbitrary, arbitrary, (before, after) => {
        // A late result replaces the synthetic one, by the rule of the session.
        const later = after.filter(
          (item) =>
            !/_output"|"tool"|tool-result|ToolMessage|FunctionMessage|"function"/.test(JSON.stringify(item)),
        );
        const first = shown(logged([before], format), contextFormat);
        fc.pre(!isProgramRunning(first.messages));
        const both = shown(
          logged(
            [before, later].filter((turn) => turn.length > 0),
            format,
          ),
          contextFormat,
        );
        expect(both.messages.slice(0, first.messages.length)).toEqual(first.messages);
        if (first.messages.length > 0) expect(both.system).toEqual(first.system);
      }),
      { numRuns: sized(100, 300) },
    );
  });
});

describe.each([
  ['openai-responses', responsesHistories],
  ['langchain', langchainHistories],
  ['ai-sdk', modelMessageHistories],
] as const)('%s', (format, arbitrary) => {
  const adapter = contextFormatOf(format);

  it('is shown unchanged if it is valid', () => {
    fc.assert(
      fc.property(arbitrary, (items) => {
        fc.pre(!items.some((item) => 'palimpsest.document' in item || item.type === 'compaction_trigger'));
        fc.pre(adapter.violations({ messages: items }).length === 0);
        const log = logged([items], format);
        fc.pre(isInOrder(log));
        expect(shown(log, format)).toEqual({ messages: items });
      }),
      { numRuns: sized(100, 300) },
    );
  });
});

describe.each(ownFormats)('%s', (format) => {
  it('accepts any session of chat messages', () => {
    fc.assert(
      fc.property(histories, (messages) => {
        expect(contextFormatOf(format).violations(shownChat(messages, format))).toEqual([]);
      }),
      { numRuns: sized(100, 300) },
    );
  });

  it('accepts long sessions with all kinds of defects', () => {
    fc.assert(
      fc.property(sessions, (turns) => {
        expect(contextFormatOf(format).violations(shownChat(turns.flat(), format))).toEqual([]);
      }),
      { numRuns: 60 },
    );
  });
});
