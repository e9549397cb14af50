/** The engine without database and workflow: over an array of messages, and as a session in memory. */
import { describe, expect, test } from 'vitest';
import {
  applyCompaction,
  Conversation,
  planCompaction,
  type Summarizer,
} from '../../../src/compaction/in-memory/index.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { recoveryTools } from '../../../src/contract/recovery-tools.js';
import { validateView } from '../../../src/context/view/validity.js';
import { PalimpsestError } from '../../../src/errors.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { recorded, summaryOf, turnsOf } from '../../support/debugging-session.js';
import { dialogue, smallPolicy, words } from '../../support/dialogue.js';

const summarize: Summarizer = ({ messages }) => summaryOf(messages.at(-1)?.content ?? '');

describe('over an array of messages', () => {
  const messages = dialogue(18).flat();
  const policy = smallPolicy;

  test('plan and apply replace the older part and do not change the input', async () => {
    const before = JSON.stringify(messages);
    const plan = await planCompaction(messages, { policy });
    if ('nothing' in plan) throw new Error(plan.nothing);
    expect(plan).toMatchObject({ method: 'model', fromSeq: 1, reason: 'trigger' });
    expect(JSON.stringify(plan)).not.toContain('Request');
    const compacted = await applyCompaction(messages, plan, { policy, summarize });
    expect(compacted.tokens).toBeLessThan(0.6 * plan.tokensBefore);
    expect(validateView(compacted.messages)).toEqual([]);
    expect(compacted.messages.at(-1)).toEqual(messages.at(-1));
    expect(JSON.stringify(messages)).toBe(before);
  });

  test('without a summarizer the rules write the summary', async () => {
    const plan = await planCompaction(messages, { policy });
    if ('nothing' in plan) throw new Error(plan.nothing);
    const { generation } = await applyCompaction(messages, plan, { policy });
    expect(generation).toMatchObject({ method: 'extractive', fallback: true });
  });

  test('nothing is planned below the trigger, unless asked for', async () => {
    const few = messages.slice(0, 12);
    expect(await planCompaction(few, { policy })).toEqual({ nothing: 'no trigger is met', exhausted: false });
    expect(await planCompaction(few, { policy, force: true })).toMatchObject({ reason: 'manual' });
  });

  test('a window too small for the newest request is refused with the numbers', async () => {
    const endless: ChatMessage[] = [...messages, { role: 'user', content: words(6_000) }];
    const failure = await planCompaction(endless, { policy }).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(PalimpsestError);
    expect(failure).toMatchObject({ type: 'Budget.Unreachable', details: { window: 3_500 } });
  });

  test('a pinned message that leaves no room is refused before any model call', async () => {
    const long: ChatMessage[] = [{ role: 'user', content: words(3_600) }, ...messages];
    const pinned = planCompaction(long, { policy: { ...policy, pins: [{ seq: 1 }] } });
    await expect(pinned).rejects.toMatchObject({ type: 'Budget.Unreachable', details: { pins: 3_604 } });
  });

  test('a custom counter is used for all sizes', async () => {
    const counter = { name: 'custom:words' as const, count: (text: string) => text.split(/\s+/).length * 3 };
    const plan = await planCompaction(dialogue(7).flat(), { policy, counter });
    expect(plan).toMatchObject({ method: 'model' });
  });
});

describe('a session in memory', () => {
  test('stays unchanged if the summarizer throws, answers junk or refuses', async () => {
    for (const answer of ['', 'I cannot help with that.', '{"error":{"message":"overloaded"}}', null]) {
      const conversation = new Conversation({ policy: { ...smallPolicy, summary: { fallback: 'none' } } });
      for (const turn of dialogue(18)) conversation.append(turn);
      const before = JSON.stringify(conversation.context());
      const broken: Summarizer = () => {
        if (answer === null) throw new Error('socket hang up');
        return answer;
      };
      await expect(conversation.compact(broken)).rejects.toThrow();
      expect(JSON.stringify(conversation.context())).toBe(before);
      expect(conversation.generations).toEqual([]);
    }
  });

  test('a consolidation deeper than allowed is refused; the fallback serves if the policy allows it', async () => {
    const long: Summarizer = () => `## Current state\n- ${words(90)}`;
    const summary = { mode: 'incremental', chunkTokens: 256, contextWindow: 3_000, depthLimit: 1 } as const;
    const deep = (fallback: 'none' | 'extractive'): Conversation => {
      const policy: PolicyInput = { contextWindow: 16_000, summary: { ...summary, fallback } };
      const conversation = new Conversation({ policy });
      conversation.append(dialogue(80).flat());
      return conversation;
    };
    await expect(deep('none').compact(long)).rejects.toMatchObject({ type: 'Summary.DepthExceeded' });
    expect(await deep('extractive').compact(long)).toMatchObject({ method: 'extractive', fallback: true });
  });

  test('pins by number and by pattern stay word for word over many compactions', async () => {
    const rule = 'RULE: never deploy on a Friday — “not even hotfixes”.';
    const policy: PolicyInput = {
      ...smallPolicy,
      pins: ['Tenant: acme', { seq: 3 }, { pattern: 'RULE: .*' }],
    };
    const conversation = new Conversation({ policy });
    for (const [index, turn] of dialogue(80).entries()) {
      const [user, assistant] = turn;
      const said = index === 2 ? `${rule}\n${String(user!.content)}` : user!.content;
      conversation.append([{ ...user!, content: said }, assistant!]);
      while (conversation.isDue()) if (!(await conversation.compact(summarize))) break;
    }
    expect(conversation.generations.length).toBeGreaterThan(4);
    const head = JSON.stringify(conversation.context().messages[0]);
    expect(head).toContain('Tenant: acme');
    expect(head).toContain(JSON.stringify(rule).slice(1, -1));
    expect(head).toContain(JSON.stringify(conversation.log[2]!.message.content).slice(1, 60));
  });

  test.each(['incremental', 'full_rewrite', 'layered', 'journal'] as const)(
    'the context names only tools that the agent has: %s',
    async (mode) => {
      const named = async (recovery: 'tools' | 'none'): Promise<string[]> => {
        const policy: PolicyInput = {
          contextWindow: 8_000,
          recovery,
          reduce: { newestUserMessage: true },
          summary: { mode },
        };
        const conversation = new Conversation({ policy });
        const shown: string[] = [];
        for (const turn of turnsOf(recorded)) {
          conversation.append(turn);
          shown.push(JSON.stringify(conversation.context()));
          if (conversation.isDue()) await conversation.compact(summarize);
          shown.push(JSON.stringify(conversation.context(3_000)));
        }
        expect(conversation.generations.length).toBeGreaterThan(1);
        return recoveryTools
          .map(({ function: { name } }) => name)
          .filter((name) => shown.some((text) => text.includes(name)));
      };
      expect(await named('tools')).toEqual(['get_tool_response', 'search_history', 'expand_history']);
      expect(await named('none')).toEqual([]);
    },
  );

  test('restore returns the exact earlier context, and later compactions continue from it', async () => {
    const conversation = new Conversation({ policy: smallPolicy });
    const turns = turnsOf(recorded);
    const contexts = new Map<number, string>();
    for (const turn of turns) {
      conversation.append(turn);
      while (conversation.isDue()) if (!(await conversation.compact(summarize))) break;
      const newest = conversation.generations.at(-1);
      if (newest && !contexts.has(newest.generation))
        contexts.set(newest.generation, JSON.stringify(newest.head));
    }
    const [first] = contexts.keys();
    const restored = conversation.restore(first!);
    expect(JSON.stringify(restored.head)).toBe(contexts.get(first!));
    expect(restored.parent).toBe(first);
    expect(JSON.stringify(conversation.replay())).toBe(JSON.stringify(recorded));
    expect(conversation.isDue()).toBe(false);
    expect(await conversation.compact(summarize, { force: true })).toMatchObject({
      parent: restored.generation,
    });
    expect(JSON.stringify(conversation.replay())).toBe(JSON.stringify(recorded));
  });
});

describe('written ahead of the trigger', () => {
  const policy: PolicyInput = { ...smallPolicy, summary: { mode: 'journal' } };
  const turns = dialogue(40);
  /** Notes that quote the record. */
  const notes: Summarizer = ({ messages }) => {
    const material = messages.at(-1)?.content ?? '';
    const said = [...material.matchAll(/^<\d{3}>(\d+) [^\n]*\n([^\n]{0,120})/gm)];
    return `## Notes\n${said.map(([, seq, text]) => `- ${text} [m${seq}]`).join('\n')}\n\n## State\n- none`;
  };

  const refuses: Summarizer = () => {
    throw new PalimpsestError('Llm.Unavailable', 'nobody is there');
  };

  /** There are no arguments to be truncated. */
  async function appended(conversation: Conversation, turn: readonly ChatMessage[]): Promise<void> {
    conversation.append(turn);
    if (conversation.isDue()) expect(await conversation.compact(refuses)).toBeNull();
  }

  /** Plays until something was written ahead; answers the turns played and the calls made. */
  async function playedUntilAhead(conversation: Conversation, summarizer: Summarizer) {
    for (const [index, turn] of turns.entries()) {
      await appended(conversation, turn);
      if (conversation.isAlmostDue()) {
        const before = JSON.stringify(conversation.context().messages);
        const calls = await conversation.writeAhead(summarizer);
        expect(JSON.stringify(conversation.context().messages)).toBe(before);
        expect(conversation.isAlmostDue()).toBe(false);
        return { played: index + 1, calls };
      }
    }
    throw new Error('the conversation did not come close to its threshold');
  }

  function playOn(conversation: Conversation, from: number): void {
    for (const turn of turns.slice(from)) {
      if (conversation.isDue()) return;
      conversation.append(turn);
    }
  }

  test('is used: the compaction makes no model call and counts its cost', async () => {
    const conversation = new Conversation({ policy });
    const { played, calls } = await playedUntilAhead(conversation, notes);
    expect(calls.map(({ kind }) => kind)).toEqual(['notes', 'notes', 'state']);
    playOn(conversation, played);
    const throughSeq = conversation.writtenThroughSeq;
    const generation = await conversation.compact(refuses);
    expect(generation).toMatchObject({ method: 'model', throughSeq, calls });
    expect(conversation.isDue()).toBe(false);
    expect(conversation.replay()).toEqual(conversation.log.map(({ message }) => message));
  });

  test('but does not cover the whole range: the request for the rest includes its changes of the state', async () => {
    const conversation = new Conversation({ policy: { contextWindow: 8_192, summary: { mode: 'journal' } } });
    const wish = 'Please keep the ledger of the harbour in whole crowns.';
    const asked: string[] = [];
    const writer: Summarizer = (request, { kind }) => {
      const material = request.messages.at(-1)?.content ?? '';
      asked.push(`${kind}: ${material}`);
      const changes = material.includes(wish) ? `- new rule: "${wish}" [m1]` : '- none';
      return String(notes(request, { kind, maxTokens: request.maxTokens })).replace('- none', changes);
    };
    const said = (from: number, count: number): ChatMessage[] => [
      { role: 'user', content: Array.from({ length: count }, (_, at) => `parcel-${from + at}`).join(' ') },
      { role: 'assistant', content: `Counted from ${from}.` },
    ];
    conversation.append([{ role: 'user', content: wish }]);
    for (let from = 0; !conversation.isAlmostDue(); from += 30) await appended(conversation, said(from, 30));
    expect((await conversation.writeAhead(writer)).map(({ kind }) => kind)).toEqual(['notes']);
    conversation.append(said(1_000, 1_200));
    conversation.append(said(2_000, 1_200));
    const generation = await conversation.compact(writer);
    expect(generation?.throughSeq).toBeGreaterThan(Number(generation?.layers?.[0]?.throughSeq));
    expect(asked.at(-1)).toMatch(/^state: /);
    expect(asked.at(-1)).toContain(`- new rule: "${wish}" [m1]\n</changes`);
    expect(generation?.state).toContain(wish);
  });

  test('but not answered yet: the compaction waits for that answer', async () => {
    const conversation = new Conversation({ policy });
    let answer: () => void = () => undefined;
    const held = new Promise<void>((resolve) => (answer = resolve));
    let asked = 0;
    const late: Summarizer = async (request, about) => {
      asked += 1;
      await held;
      return notes(request, about);
    };
    let from = 0;
    for (; !conversation.isAlmostDue(); from++) await appended(conversation, turns[from]!);
    const writing = conversation.writeAhead(late);
    await expect.poll(() => asked).toBeGreaterThan(0);
    playOn(conversation, from);
    const compacting = conversation.compact(late);
    answer();
    expect(await compacting).toMatchObject({ method: 'model' });
    expect(asked).toBe((await writing).length);
  });

  test('but failed: the compaction makes the call', async () => {
    const conversation = new Conversation({ policy });
    const { played, calls } = await playedUntilAhead(conversation, refuses);
    expect(calls).toEqual([]);
    playOn(conversation, played);
    expect(await conversation.compact(notes)).toMatchObject({ method: 'model', fallback: false });
  });

  test('does not happen if the policy forbids it, uses no model, or keeps a snapshot', async () => {
    const others: PolicyInput[] = [
      { ...policy, memory: { eager: false } },
      { ...policy, enabled: false },
      { ...smallPolicy, summary: { mode: 'incremental' } },
      { ...smallPolicy, summary: { mode: 'journal', method: 'extractive' } },
    ];
    for (const other of others) {
      const conversation = new Conversation({ policy: other });
      for (const turn of turns) {
        conversation.append(turn);
        if (conversation.isDue()) await conversation.compact(notes);
        expect(conversation.isAlmostDue()).toBe(false);
      }
    }
  });
});
