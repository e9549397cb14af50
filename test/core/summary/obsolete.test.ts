/** What a session says is gone leaves the ledger; what anybody still mentions stays, and a tool's output declares nothing. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ChatMessage, LoggedMessage } from '../../../src/conversation/message.js';
import { containsAtom } from '../../../src/summary/text/sentences.js';
import { buildLedger } from '../../../src/summary/ledger/ledger.js';
import { declaredObsolete } from '../../../src/summary/ledger/obsolete.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { indexed } from '../../../bench/quality/needs.js';
import { readTranscripts, skipWithoutTranscripts } from '../../support/transcripts.js';

const counter = counterFor('o200k_base');
const user = (content: string): ChatMessage => ({ role: 'user', content });
const assistant = (content: string): ChatMessage => ({ role: 'assistant', content });
const tool = (content: string): ChatMessage => ({ role: 'tool', tool_call_id: 'c', content });

const shell = (command: string): ChatMessage => ({
  role: 'assistant',
  content: null,
  tool_calls: [
    { id: 'c', type: 'function', function: { name: 'bash', arguments: JSON.stringify({ command }) } },
  ],
});

const log = (messages: readonly ChatMessage[]): LoggedMessage[] =>
  messages.map((message, index) => ({ seq: index + 1, message, tokens: 10 }));

const ledgerOf = (
  evicted: readonly ChatMessage[],
  kept: readonly ChatMessage[] = [],
  previous: string | null = null,
) =>
  buildLedger({
    previous,
    evicted: log(evicted),
    kept: log(kept),
    snapshot: '',
    maxTokens: 1_000,
    counter,
  });

const declaredBy = (message: ChatMessage): string[] => {
  const found: string[] = [];
  declaredObsolete(message, (atom) => found.push(atom));
  return [...new Set(found)];
};

describe('declared obsolete', () => {
  test.each<[string, string]>([
    ['I renamed `src/old.ts` to `src/new.ts`.', 'src/old.ts'],
    ['The table user_v1 was renamed to user_v2.', 'user_v1'],
    ['Moved the file lib/a.py to lib/b.py today', 'lib/a.py'],
    ['I deleted tmp/scratch.log.', 'tmp/scratch.log'],
    ['We no longer use api_key_17.', 'api_key_17'],
    ['The endpoint /v1/orders is no longer available.', '/v1/orders'],
    ['Use client_v2 instead of client_v1.', 'client_v1'],
    ['Replaced config.yml with config.toml everywhere.', 'config.yml'],
    ['host-10-0-0-7 has been decommissioned.', 'host-10-0-0-7'],
    ['The branch feature_x1 is obsolete.', 'feature_x1'],
  ])('%j: %s', (text, atom) => {
    expect(declaredBy(assistant(text))).toEqual([atom]);
    expect(declaredBy(user(text))).toEqual([atom]);
    expect(declaredBy(tool(text))).toEqual([]);
  });

  test.each([
    'Please delete tmp/scratch.log.',
    'Should I say that src/old.ts was removed?',
    'If user_v1 was renamed to user_v2, tell me.',
    'user_v1 was not removed.',
    "I haven't deleted tmp/scratch.log yet.",
    'I will have renamed src/old.ts to src/new.ts by then.',
    'Removed the import of helper_1 from src/main.ts.',
    'user_v1 was removed from group_7.',
    'Removed some files.',
    'Replaced it with src/new.ts.',
  ])('%j declares nothing', (text) => {
    expect(declaredBy(assistant(text))).toEqual([]);
  });

  test.each<[string, string[]]>([
    ['rm -f build/a.js build/b.js', ['build/a.js', 'build/b.js']],
    ['cd /work && git rm src/old.ts', ['src/old.ts']],
    ['mv src/old.ts src/new.ts', ['src/old.ts']],
    ['rm src/a.ts && touch src/a.ts', []],
    ['rm -rf dist/*', []],
    ['rm "$TMP_FILE"', []],
    ['echo rm src/a.ts', []],
  ])('the command %j: %j', (command, gone) => {
    expect(declaredBy(shell(command))).toEqual(gone);
  });
});

describe('in the ledger', () => {
  test('what was declared obsolete leaves, also where an earlier generation had listed it', () => {
    const first = ledgerOf([user('Work on src/old.ts and src/main.ts.')]);
    expect(first).toContain('src/old.ts');
    const second = ledgerOf([assistant('I renamed src/old.ts to src/new.ts.')], [], first);
    expect(containsAtom(second, 'src/old.ts')).toBe(false);
    expect(second).toContain('src/new.ts');
    expect(second).toContain('src/main.ts');
  });

  test('who mentions it again takes the declaration back, in the evicted messages or in the tail', () => {
    const declared = [user('See src/old.ts.'), assistant('I deleted src/old.ts.')];
    expect(ledgerOf(declared)).not.toContain('src/old.ts');
    expect(ledgerOf([...declared, user('Restore src/old.ts first.')])).toContain('src/old.ts');
    expect(ledgerOf(declared, [shell('git checkout src/old.ts')])).toContain('src/old.ts');
    expect(ledgerOf([...declared, tool('src/old.ts: 12 lines')])).toContain('src/old.ts');
  });

  test('a declaration in the tail counts for what was evicted', () => {
    const kept = [assistant('I deleted src/old.ts.')];
    expect(ledgerOf([user('See src/old.ts and src/b.ts.')], kept)).not.toContain('src/old.ts');
  });

  test('a setting that was given another value keeps the new one only', () => {
    const ledger = ledgerOf([
      shell('export API_HOST=host-1.example.org'),
      shell('export API_HOST=host-2.example.org'),
    ]);
    expect(ledger).toContain('host-2.example.org');
    expect(ledger).not.toContain('host-1.example.org');
    const back = ledgerOf([
      shell('export API_HOST=host-1.example.org'),
      shell('export API_HOST=host-2.example.org'),
      shell('export API_HOST=host-1.example.org'),
    ]);
    expect(back).toContain('host-1.example.org');
  });

  test('of a canonical fact the newest wording stays, of each subject', () => {
    const ledger = ledgerOf([
      tool('PROJECT_FACT|code=ORBIT|owner=Ada Lovelace|milestone=design'),
      tool('PROJECT_FACT|code=NOVA|owner=Alan Turing|milestone=build'),
      tool('PROJECT_FACT|code=ORBIT|owner=Ada Lovelace|milestone=launch'),
    ]);
    expect(ledger).toContain('PROJECT_FACT|code=ORBIT|owner=Ada Lovelace|milestone=launch');
    expect(ledger).toContain('PROJECT_FACT|code=NOVA|owner=Alan Turing|milestone=build');
    expect(ledger).not.toContain('milestone=design');
  });

  test('an identifier whose last mention is not its declaration is never dropped', () => {
    const names = ['src/a.ts', 'src/b.ts', 'order_4711', '#W100200'];
    const event = fc.record({
      name: fc.constantFrom(...names),
      kind: fc.constantFrom('gone', 'user', 'tool', 'call' as const),
    });
    fc.assert(
      fc.property(fc.array(event, { minLength: 1, maxLength: 12 }), fc.nat(12), (events, cut) => {
        const messages = events.map(({ name, kind }): ChatMessage => {
          if (kind === 'gone') return assistant(`I deleted ${name}.`);
          if (kind === 'call') return shell(`cat ${name}`);
          return kind === 'user' ? user(`Look at ${name} now.`) : tool(`found ${name}`);
        });
        const evicted = messages.slice(0, Math.max(1, cut));
        const ledger = ledgerOf(evicted, messages.slice(evicted.length));
        for (const name of names) {
          if (!events.slice(0, evicted.length).some((one) => one.name === name)) continue;
          const last = events.findLast((one) => one.name === name);
          expect(containsAtom(ledger, name)).toBe(last?.kind !== 'gone');
        }
      }),
    );
  });
});

describe.skipIf(skipWithoutTranscripts())('recorded sessions', () => {
  test('nothing that an action names later, unprompted, was taken for obsolete', async () => {
    let declared = 0;
    for await (const { line } of readTranscripts()) {
      const { id, messages } = JSON.parse(line) as { id: string; messages: ChatMessage[] };
      const { named, acted } = indexed(messages);
      messages.forEach((message, index) => {
        for (const atom of declaredBy(message)) {
          declared++;
          const next = named.findIndex((names, later) => later > index && names.has(atom));
          expect(next >= 0 && acted[next]!.has(atom), `${id}: ${atom}`).toBe(false);
        }
      });
    }
    expect(declared).toBeGreaterThan(0);
  });
});
