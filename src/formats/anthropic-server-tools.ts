/**
 * Calls of tools that the provider runs itself (web search, code execution, MCP connectors), and their results. Both are blocks
 * of the assistant. A result stands in the turn of its call, or in the next one where the call stood beside calls of the client
 * (platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools).
 */
import type { Json } from '../conversation/message.js';
import type { Turn } from './anthropic-convert.js';
import { isFields, placeholder, textOr, type Fields } from './content.js';

const isCall = ({ type }: Fields): boolean => /^(?:server|mcp)_tool_use$/.test(textOr(type));
const isResult = ({ type }: Fields): boolean => /._tool_result$/.test(textOr(type));

/**
 * The turns with every call of the provider's tools paired with its result; one without the other is told in words. A call that
 * the provider has yet to answer (after `pause_turn`, or beside calls of the client) stays.
 */
export function withServerPairs(turns: readonly Turn[]): Turn[] {
  const { kept, calls } = pairsIn(turns);
  return turns.map((turn, number) => {
    const { role, content } = turn;
    if (typeof content === 'string') return turn;
    const shown = content.map((block, index): Json => {
      if (!isFields(block)) return block;
      const isTold = (isCall(block) || isResult(block)) && !kept.has(placeOf(number, index));
      return isTold ? (placeholder(textOr(block.type), block) as Fields) : withCaller(block, calls);
    });
    return shown.every((block, index) => block === content[index]) ? turn : { role, content: shown };
  });
}

const placeOf = (turn: number, block: number): string => `${turn}:${block}`;

/** Places of the calls and results that stay, and the ids of these calls. */
function pairsIn(turns: readonly Turn[]): { kept: Set<string>; calls: Set<string> } {
  const kept = new Set<string>();
  const calls = new Set<string>();
  const open = new Map<string, { place: string; turn: number }>();
  const keep = (id: string, ...places: string[]) => {
    for (const place of places) kept.add(place);
    calls.add(id);
    open.delete(id);
  };
  turns.forEach(({ role, content }, turn) => {
    if (role === 'user') {
      if (!isAnswer(content)) open.clear();
      return;
    }
    if (typeof content === 'string') return;
    content.forEach((block, index) => {
      if (!isFields(block)) return;
      const place = placeOf(turn, index);
      const id = textOr(isCall(block) ? block.id : block.tool_use_id);
      const call = open.get(id);
      if (isCall(block) && !call && !calls.has(id)) open.set(id, { place, turn });
      else if (isResult(block) && call) keep(id, call.place, place);
    });
  });
  const last = turns.length - 1;
  for (const [id, { place, turn }] of [...open])
    if (turn === last || turns[last]?.role === 'user') keep(id, place);
  return { kept, calls };
}

/** Whether a user's turn only answers: the provider then goes on with the turn before. */
const isAnswer = (content: Turn['content']): boolean =>
  typeof content !== 'string' && content.every((block) => isFields(block) && block.type === 'tool_result');

/** A call that a program of the provider made names the call of that program, if it is shown. */
function withCaller(block: Fields, calls: ReadonlySet<string>): Fields {
  const { caller, ...rest } = block;
  return isFields(caller) && typeof caller.tool_id === 'string' && !calls.has(caller.tool_id) ? rest : block;
}
