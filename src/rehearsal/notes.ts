/** Writes notes without a model: words of the given texts, as many as requested, so that a journal has a realistic size. */
import type { Summarizer } from '../compaction/in-memory/asker.js';
import type { TokenCounter } from '../tokens/counter.js';

const wordsOfLine = 22;

/** Answers requests of `journal` mode. The state stays unchanged. */
export function notesAsAsked(counter: TokenCounter): Summarizer {
  return ({ messages, asked = 0 }, { kind, maxTokens }) => {
    if (kind === 'state') return '- none';
    const words = (messages.at(-1)?.content ?? '').match(/\S+/g) ?? [];
    const limit = asked || maxTokens;
    const wanted = Math.max(1, Math.floor(limit / lineTokens(words, counter)));
    const step = Math.max(wordsOfLine, Math.floor(words.length / wanted));
    const lines: string[] = [];
    let tokens = 0;
    for (let at = 0; at < words.length; at += step) {
      const line = `- ${words
        .slice(at, at + wordsOfLine)
        .join(' ')
        .slice(0, 600)}`;
      const size = counter.count(`${line}\n`);
      if (tokens + size > limit && lines.length > 0) break;
      tokens += size;
      lines.push(line);
    }
    const notes = lines.join('\n');
    return kind === 'notes' ? `## Notes\n${notes}\n\n## State\n- none` : notes;
  };
}

/** Returns the tokens of a line, estimated from a few lines across the text. */
function lineTokens(words: readonly string[], counter: TokenCounter): number {
  const samples = [0.1, 0.3, 0.5, 0.7, 0.9].map((share) => {
    const from = Math.floor(share * Math.max(0, words.length - wordsOfLine));
    return counter.count(
      `- ${words
        .slice(from, from + wordsOfLine)
        .join(' ')
        .slice(0, 600)}\n`,
    );
  });
  return Math.max(1, samples.reduce((sum, size) => sum + size, 0) / samples.length);
}
