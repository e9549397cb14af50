import { parseExact } from '../conversation/json.js';
import type { Json } from '../conversation/message.js';
import { invalid } from '../errors.js';

/**
 * Sizes as people type them, for `trigger` and `keep`: `0.85` (share of the window), `6000` (tokens; below 100:
 * messages), `tokens=6000,messages=40`, `economic`, `idle=300000`, or JSON as in a policy. `name` is the flag or variable.
 * Throws `Input.Invalid`.
 */
export function parseSizes(spec: string, name: string): Json {
  const text = spec.trim();
  if (/^[[{]/.test(text)) return parseExact(text, { path: name });
  if (/^\d+$/.test(text)) return Number(text) < 100 ? { messages: Number(text) } : { tokens: Number(text) };
  if (/^\d*\.\d+$/.test(text)) return { fraction: Number(text) };
  if (text === 'economic') return { economic: true };
  const sizes: Record<string, number> = {};
  for (const pair of text.split(',')) {
    const [, size, value] = /^\s*([A-Za-z]+)\s*=\s*(\d*\.?\d+)\s*$/.exec(pair) ?? [];
    if (size === undefined || value === undefined) {
      throw invalid(
        `${name} ${JSON.stringify(spec)} is not understood.`,
        name,
        'Write 0.85 (share of the window), 6000 (tokens), tokens=6000,messages=40, or JSON.',
      );
    }
    sizes[size] = Number(value);
  }
  return sizes;
}
