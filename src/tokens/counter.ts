import { createRequire } from 'node:module';
import { invalid } from '../errors.js';
import { isKnownAnthropicModel, modelName } from './windows.js';
import { customCounter } from './custom-counter.js';
import { unbrokenRunsSplit } from './runs.js';
import type { TokenCounter, TokenizerName, tokenizerNames } from './token-counter.js';

/** The part of gpt-tokenizer used here. */
interface Encoding {
  countTokens(text: string, options: { disallowedSpecial: Set<string> }): number;
  clearMergeCache(): void;
}

/**
 * gpt-tokenizer remembers merged pieces as slices that keep the whole text they came from alive. Forgetting them after
 * this many characters bounds that memory and costs no measurable time.
 */
const FORGET_AFTER_CHARACTERS = 4_000_000;

/** A counter over a byte-pair encoding, loaded at the first use (tables of 1–2 MB). @internal Tests compare it with the encoder alone. */
export function bytePairCounter(name: TokenizerName, load: () => Encoding): TokenCounter {
  let encoding: Encoding | undefined;
  let remembered = 0;
  const options = { disallowedSpecial: new Set<string>() };
  return {
    name,
    count(text) {
      if (text === '') return 0;
      encoding ??= load();
      let tokens = 0;
      for (const slice of unbrokenRunsSplit(text)) tokens += encoding.countTokens(slice, options);
      remembered += text.length;
      if (remembered > FORGET_AFTER_CHARACTERS) {
        encoding.clearMergeCache();
        remembered = 0;
      }
      return tokens;
    },
  };
}

/**
 * A counter from characters. ASCII weighs 1/`perToken`; other alphabets (Latin with accents, Greek, Cyrillic, Hebrew,
 * Arabic, …) half a token a character; from U+0900 on (Indic scripts, CJK, Hangul, symbols) one; characters beyond
 * the basic plane, emoji above all, two. Texts in those scripts are undercounted by up to 40 % otherwise
 * (langchain-ai/deepagents#2121).
 */
function characterCounter(name: TokenizerName, perToken: number): TokenCounter {
  return {
    name,
    count(text) {
      let ascii = 0;
      let alphabetic = 0;
      let dense = 0;
      for (let at = 0; at < text.length; at++) {
        const unit = text.charCodeAt(at);
        if (unit < 0x80) ascii++;
        else if (unit < 0x900) alphabetic++;
        else dense++; // both halves of a surrogate pair come here
      }
      return Math.ceil(ascii / perToken + alphabetic / 2 + dense);
    },
  };
}

const load = createRequire(import.meta.url);

const counters: Record<(typeof tokenizerNames)[number], TokenCounter> = {
  o200k_base: bytePairCounter('o200k_base', () => load('gpt-tokenizer/cjs/encoding/o200k_base') as Encoding),
  cl100k_base: bytePairCounter(
    'cl100k_base',
    () => load('gpt-tokenizer/cjs/encoding/cl100k_base') as Encoding,
  ),
  'chars/4': characterCounter('chars/4', 4),
  'chars/3.3': characterCounter('chars/3.3', 3.3),
};

const registered = new Map<string, TokenCounter>();

/**
 * A counter of your own for policies with `tokenizer: 'custom:<name>'`. Register it in every process that appends,
 * reads or compacts. `count` must be deterministic and take any text; texts above 65,536 characters come in slices.
 * Throws `Input.Invalid` for a name that no policy can hold.
 * @example registerCounter('llama3', (text) => tokenizer.encode(text).length)
 */
export function registerCounter(name: string, count: (text: string) => number): void {
  if (!/^[\w.-]{1,60}$/.test(name)) {
    throw invalid(
      `A counter cannot be named ${JSON.stringify(name)}.`,
      'counters',
      'Use 1 to 60 letters, digits, dots, dashes and underscores; policies name it as custom:<name>.',
    );
  }
  if (typeof count !== 'function')
    throw invalid(`The counter ${name} is not a function.`, `counters.${name}`);
  registered.set(`custom:${name}`, customCounter(`custom:${name}`, count));
}

/** Counters by name, as `connect` and `startWorker` take them. */
export type Counters = Readonly<Record<string, (text: string) => number>>;

export function registerCounters(counters: Counters = {}): void {
  for (const [name, count] of Object.entries(counters)) registerCounter(name, count);
}

/** Throws `Input.Invalid` for a custom counter that this process has not registered. */
export function counterFor(name: TokenizerName): TokenCounter {
  const counter = isBuiltIn(name) ? counters[name] : registered.get(name);
  if (counter !== undefined) return counter;
  throw invalid(
    `The counter ${name} is not registered in this process.`,
    'policy.tokenizer',
    'Give it to connect and to startWorker as `counters`, or call registerCounter() before.',
  );
}

function isBuiltIn(name: TokenizerName): name is keyof typeof counters {
  return Object.hasOwn(counters, name);
}

const o200k = /^(gpt-4o|gpt-4\.|gpt-[5-9]|gpt-oss|gpt-audio|gpt-realtime|chatgpt|chat-latest|codex|o\d)/;
const cl100k = /^(gpt-4|gpt-3\.5|gpt-35|text-embedding-)/;

/**
 * The tokenizer of a model: OpenAI's own where the name is one of theirs, characters / 3.3 for Anthropic,
 * characters / 4 for any other name. Without a model `o200k_base`, which is closer to today's tokenizers than a
 * count of characters is.
 */
export function tokenizerForModel(model?: string): TokenizerName {
  if (model === undefined) return 'o200k_base';
  const name = modelName(model);
  if (o200k.test(name)) return 'o200k_base';
  if (cl100k.test(name)) return 'cl100k_base';
  return isKnownAnthropicModel(name) ? 'chars/3.3' : 'chars/4';
}
