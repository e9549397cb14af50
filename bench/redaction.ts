/**
 * `node --import tsx bench/redaction.ts`, with PALIMPSEST_TRANSCRIPTS set: how much of recorded sessions, which hold no planted
 * secrets, is redacted, and how fast. Lists every redacted text, the most frequent first, to be read by eye. `--quick`: a sixth.
 */
import { findSecrets } from '../src/summary/redaction/find.js';
import { atOnce } from '../src/steps.js';
import { recordedSessions } from './recorded.js';

/** Every written text of a value, as redaction reads it. */
function* textsOf(value: unknown): Generator<string> {
  if (typeof value === 'string') yield value;
  else if (typeof value === 'object' && value !== null)
    for (const [field, inner] of Object.entries(value))
      if (!(typeof inner === 'string' && ['role', 'type', 'id', 'tool_call_id', 'name'].includes(field)))
        yield* textsOf(inner);
}

const touched = new Map<string, number>();
let [words, touchedWords, characters, seconds] = [0, 0, 0, 0];
for (const messages of await recordedSessions())
  for (const text of textsOf(messages)) {
    characters += text.length;
    const ends = [...text.matchAll(/\S+/g)].map(({ index, 0: word }) => ({
      from: index,
      to: index + word.length,
    }));
    words += ends.length;
    const started = process.cpuUsage();
    const secrets = atOnce(findSecrets(text));
    const { user, system } = process.cpuUsage(started);
    seconds += (user + system) / 1e6;
    touchedWords += ends.filter(({ from, to }) =>
      secrets.some((one) => one.from < to && from < one.to),
    ).length;
    for (const { kind, from, to } of secrets) {
      const shown = `${kind}\t${JSON.stringify(text.slice(Math.max(0, from - 30), from))} ⟦${JSON.stringify(text.slice(from, to).slice(0, 80))}⟧`;
      touched.set(shown, (touched.get(shown) ?? 0) + 1);
    }
  }

console.log(`words            ${words.toLocaleString('en')}`);
console.log(`touched          ${touchedWords.toLocaleString('en')}`);
console.log(`share            ${((100 * touchedWords) / words).toFixed(3)} %`);
console.log(
  `speed            ${(characters / 1e6 / seconds).toFixed(1)} million characters per second of processor time`,
);
for (const [text, times] of [...touched].sort(([, one], [, other]) => other - one))
  console.log(`${String(times).padStart(6)}  ${text}`);
