/**
 * Turns of a Codex rollout that were taken back. `thread_rolled_back` with `num_turns` drops the last turns that stand, each
 * from the message of the user on that began it; what Codex added before that message goes with it
 * (codex-rs/core/src/context_manager/history.rs, drop_last_n_user_turns).
 */
import type { Json } from '../conversation/message.js';
import { isFields, textOr, type Fields } from './content.js';

/** Indexes of lines whose items no longer count. `itemOf`: the item of a line, null for events. */
export function rolledBackLines(lines: readonly Json[], itemOf: (line: Fields) => Json | null): Set<number> {
  const standing: { index: number; item: Fields }[] = [];
  const all = new Set<number>();
  lines.forEach((line, index) => {
    if (!isFields(line)) return;
    const turns = rolledBackTurns(line);
    const item = itemOf(line);
    if (turns > 0)
      for (const { index: dropped } of standing.splice(cutBefore(standing, turns))) all.add(dropped);
    else if (isFields(item ?? undefined)) standing.push({ index, item: item as Fields });
  });
  return all;
}

function rolledBackTurns({ type, payload }: Fields): number {
  if (type !== 'event_msg' || !isFields(payload) || payload.type !== 'thread_rolled_back') return 0;
  return typeof payload.num_turns === 'number' ? payload.num_turns : 0;
}

function cutBefore(standing: readonly { item: Fields }[], turns: number): number {
  const starts = standing.flatMap(({ item }, index) => (beginsTurn(item) ? [index] : []));
  const [first] = starts;
  if (first === undefined) return standing.length;
  let cut = starts.at(-turns) ?? first;
  while (cut > first && isContext(standing[cut - 1]!.item)) cut -= 1;
  return cut;
}

const beginsTurn = (item: Fields): boolean => item.role === 'user' && !isContext(item);

/** What Codex says in the name of the user or of the developer, with the marks that it puts around it. */
const contextual =
  /^\s*(?:# AGENTS\.md instructions|<(?:environment_context|user_instructions|skill|user_shell_command|turn_aborted|subagents?|subagent_notification|hook_prompt)\b)/i;

function isContext({ role, content }: Fields): boolean {
  if (role === 'developer') return true;
  if (role !== 'user') return false;
  if (!Array.isArray(content)) return contextual.test(textOr(content));
  return content.some((part) => isFields(part) && contextual.test(textOr(part.text)));
}
