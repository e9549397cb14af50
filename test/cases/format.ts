/**
 * The form of these cases: the messages, line by line, and the expectations after each step.
 *
 * A line is `who: text`. Who: `system`, `user`, `assistant`, `assistant [a=search b=read]` (calls `a` and `b` of these
 * tools), `tool a` (the result of call `a`). A text that ends with `~800` is filled up to about 800 tokens.
 */
import type { ChatMessage } from '../../src/conversation/message.js';
import type { FailureType } from '../../src/errors.js';
import type { PolicyInput } from '../../src/policy/schema.js';

export type Line = string;

/** The summarizer's answer. `meanwhile`: messages during its call; `repairs`: its answer to a repair. */
export type Script = ({ says: string } | { inflates: true } | { throws: FailureType | 'Error' }) & {
  repairs?: string;
  meanwhile?: Line[];
};

export interface Step {
  say?: Line[];
  /** Minutes that pass. */
  wait?: number;
  /** `due`: if a trigger fires. `rule`: on request, without a model. */
  compact?: 'due' | 'by hand' | 'rule';
  model?: Script;
  restore?: number;
  expect?: Expectation;
}

/** The expectations after a step. */
export interface Expectation {
  due?: boolean;
  /** Whether this step committed something. */
  commits?: boolean;
  /** Messages that this step evicted, the last of them; null: none. */
  evictedThrough?: number | null;
  carried?: number | null;
  fails?: FailureType | 'Error';
  /** The context equals that before the step. */
  unchanged?: boolean;
  shows?: string[];
  hides?: string[];
  /** Ids of calls shown, in order. */
  calls?: string[];
  /** Requests to the summarizer in this step. */
  asked?: number;
  /** Texts that the summarizer must and must not read in this step. */
  reads?: string[];
  readsNot?: string[];
  /** The head's snapshot is this. */
  snapshot?: string;
  /** Context tokens at most. */
  tokens?: number;
  /** Asking for a context of this many tokens is answered with `Budget.Unreachable`. */
  unreachable?: number;
  /** A context of this many tokens can be had; then every tool result is at most so many characters. */
  fits?: { budget: number; longestResult?: number };
}

export interface OwnCase {
  name: string;
  policy?: PolicyInput;
  steps: Step[];
}

const lineForm = /^(system|user|assistant|tool)(?: \[([^\]]*)\]| (\w+))?: ([^]*)$/;

export function messageOf(line: Line): ChatMessage {
  const [, role, calls, answers, rest = ''] = lineForm.exec(line) ?? [];
  const content = filled(rest);
  if (role === 'tool') return { role, tool_call_id: answers ?? '', content };
  if (role === 'assistant' && calls !== undefined) {
    const toolCalls = calls.split(' ').map((call) => {
      const [id = '', name = ''] = call.split('=');
      return { id, type: 'function', function: { name, arguments: JSON.stringify({ of: id }) } };
    });
    return { role, content: content === '' ? null : content, tool_calls: toolCalls };
  }
  if (role === 'system' || role === 'user' || role === 'assistant') return { role, content };
  throw new Error(`no message: ${line}`);
}

const words =
  'flour butter oven sheet dough yeast crumb glaze proof salt rye spelt malt tin rack batch'.split(' ');

/** Distinct for each text, so that no two fillings are alike. */
function filled(text: string): string {
  const [mark, size] = /~(\d+)$/.exec(text) ?? [];
  if (mark === undefined) return text;
  const start = text.slice(0, -mark.length).trimEnd();
  const pieces = [start];
  for (let length = start.length, at = start.length; length < Number(size) * 4; at += 7) {
    const word = words[(at * at + start.length) % words.length] ?? '';
    pieces.push(word);
    length += word.length + 1;
  }
  return pieces.join(' ');
}
