import type { Step } from '../conversation/json.js';

const token = /"(?:[^"\\]|\\.)*"?|[{}[\],:]|[^\s{}[\],:"]+|\n/g;

/** An object or list that is open at a place in the text, and where in it that place is. */
interface Open {
  list: boolean;
  /** Key or index of the value that comes next. */
  step: Step;
}

/** The line, from 1, on which the value at a path of a JSON text begins; null where the text has none there. */
export function lineOf(text: string, path: readonly Step[]): number | null {
  const open: Open[] = [];
  let line = 1;
  let keyNext = false;
  for (const [found] of text.matchAll(token)) {
    const inside = open.at(-1);
    if (found === '\n') line++;
    else if (found === '}' || found === ']') {
      open.pop();
      keyNext = false;
    } else if (found === ',') {
      if (inside?.list && typeof inside.step === 'number') inside.step++;
      keyNext = inside !== undefined && !inside.list;
    } else if (found === ':') continue;
    else if (keyNext && inside) {
      inside.step = String(JSON.parse(found));
      keyNext = false;
    } else {
      if (open.length === path.length && open.every(({ step }, depth) => step === path[depth])) return line;
      if (found === '{' || found === '[') open.push({ list: found === '[', step: found === '[' ? 0 : '' });
      keyNext = found === '{';
    }
  }
  return null;
}
