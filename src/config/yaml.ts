import { createRequire } from 'node:module';
import type * as Yaml from 'yaml';

const require = createRequire(import.meta.url);

interface Read {
  /** Null for an empty text. */
  parsed: unknown;
  /** The first syntax error: `line 2, column 1: Map keys must be unique`. */
  problem: string | undefined;
  /**
   * Line, from 1, of the value at a path such as `api.tokens[0]`, or of the innermost value around it; null if only the whole
   * text contains it.
   */
  lineOf: (path: string) => number | null;
}

/** Parses YAML, and JSON as a part of it. */
export function parseYaml(text: string): Read {
  // Most processes read no YAML, and loading its parser takes as long as a round trip.
  const { isNode, LineCounter, parseDocument } = require('yaml') as typeof Yaml;
  const lineCounter = new LineCounter();
  const document = parseDocument(text, { lineCounter, prettyErrors: false, logLevel: 'error' });
  const [error] = document.errors;
  const { line, col } = lineCounter.linePos(error?.pos[0] ?? 0);
  const { parsed, problem } = error
    ? { parsed: undefined, problem: `line ${line}, column ${col}: ${withoutSource(error.message)}` }
    : valueOf(document);
  return {
    parsed,
    problem,
    lineOf(path) {
      const steps = (path.match(/[^.[\]]+/g) ?? []).map((step) => (/^\d+$/.test(step) ? Number(step) : step));
      for (; steps.length > 0; steps.pop()) {
        const node = document.getIn(steps, true);
        if (isNode(node) && node.range) return lineCounter.linePos(node.range[0]).line;
      }
      return null;
    },
  };
}

/** An alias without its anchor, or too many aliases of aliases, are found only here. */
function valueOf(document: Yaml.Document): Pick<Read, 'parsed' | 'problem'> {
  try {
    return { parsed: document.toJS(), problem: undefined };
  } catch (error) {
    return {
      parsed: undefined,
      problem: withoutSource(error instanceof Error ? error.message : String(error)),
    };
  }
}

/** A message of the parser without the text that it quotes at its end: a password such as `*x` reads as an alias. */
const withoutSource = (message: string): string => message.replace(/(?<=[\w)]): .*$/s, '');
