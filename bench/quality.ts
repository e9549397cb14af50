/**
 * `PALIMPSEST_TRANSCRIPTS=<folder> node --import tsx bench/quality.ts [--quick] [--beside FILE]`: measures the share of later
 * needed identifiers that are still in the context after compaction, on recorded sessions, without a model. Writes Markdown to
 * stdout; `--quick` reads every sixth session; `--beside` compares `journal` with `incremental` of another version, whose
 * `Conversation` that file exports. The recorded data must be downloaded separately.
 */
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import type { Conversation } from '../src/compaction/in-memory/conversation.js';
import { counterFor } from '../src/tokens/counter.js';
import { besideVersion, compactedSessions, KEEPS, passes } from './quality/compacted.js';
import { recordedSessions, SMALLEST_SESSION } from './quality/sessions.js';

const { values: options } = parseArgs({
  options: { quick: { type: 'boolean', default: false }, beside: { type: 'string' } },
});
const folder = process.env.PALIMPSEST_TRANSCRIPTS;
if (folder === undefined) {
  console.error('PALIMPSEST_TRANSCRIPTS names no folder of recorded sessions.');
  process.exit(2);
}

const counter = counterFor('o200k_base');
const started = Date.now();
const all = await recordedSessions(folder, counter);
const sessions = options.quick ? all.filter((_, index) => index % 6 === 0) : all;
console.error(`${sessions.length} sessions …`);
if (options.beside !== undefined) {
  const file = path.resolve(options.beside);
  const older = (await import(pathToFileURL(file).href)) as { Conversation: typeof Conversation };
  console.log(await besideVersion(sessions, counter, passes, older.Conversation));
  process.exit(0);
}
const compacted = await compactedSessions(sessions, counter, {
  passes: options.quick ? [1, 4] : passes,
  modes: options.quick ? ['journal'] : ['journal', 'incremental', 'full_rewrite'],
});

const verdict = (met: boolean) => (met ? 'met' : '**missed**');
console.log(
  `## What compaction keeps

${sessions.length} recorded sessions of at least ${SMALLEST_SESSION.toLocaleString('en-US')} tokens${options.quick ? ' (every sixth; `--quick`)' : ''}; the grammar of identifiers is the bench's own (\`bench/quality/grammar.ts\`).
An identifier is *needed* where a later action of the agent names it before any user or tool message does. In brackets: 95 % interval, bootstrap over sessions.

- Needed identifiers that the archive gives back: ${compacted.unresolvable === 0 ? '100 %' : `${compacted.unresolvable} are missing`}, bar 100 %: ${verdict(compacted.unresolvable === 0)}
- Pinned rules, word for word in every context: ${compacted.pinsLost === 0 ? '100 %' : `${compacted.pinsLost} times missing`}, bar 100 %: ${verdict(compacted.pinsLost === 0)}
- Summarizer tokens per evicted token, 1,000 turns, window 128,000, \`incremental\`: ${compacted.costAt128k?.toFixed(3) ?? '–'}, bar ≤ 1.15: ${verdict((compacted.costAt128k ?? Infinity) <= 1.15)}

${compacted.markdown}

The lossy oracle keeps each identifier of a request with probability ${KEEPS}, those mentioned most first where room is short. A session is compacted as often as stated at the largest window of 128, 64, 32, 16, 8 and 4 thousand tokens that does; smaller windows leave less room for the head (column "head"; pins and the carried request count there too).
Steps between commits whose prefix changed are those in which a turn alone made the context exceed its budget, so that reductions were made at once.
The grammar was left as it was first written: it takes closing tags of HTML (/div), style classes and colours for identifiers, which exact values leave out on purpose.
Retention is an upper bound of usefulness: an identifier in a list carries no meaning, and no agent was run here.`,
);
console.error(`${Math.round((Date.now() - started) / 1_000)} s`);
