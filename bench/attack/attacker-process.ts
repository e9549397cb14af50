/** The attacker in a separate process, so that it takes no CPU time from the measured client. Ends with its parent. */
import { attacks } from './attacks.js';
import type { Target } from './target.js';

const { kind, target } = JSON.parse(process.env['ATTACK'] ?? '{}') as { kind: string; target: Target };
const attack = attacks[kind];
if (!attack) throw new Error(`there is no attack ${kind}`);
const over = new AbortController();
process.once('message', () => over.abort());
process.once('disconnect', () => process.exit());
const noted: Record<string, number> = {};
await attack.run(target, over.signal, (what) => (noted[what] = (noted[what] ?? 0) + 1));
process.send?.(noted);
