/** The messages that a line of journal or state rests on, written at its end: `[m412]`, `[m412-415]`, `[m412, m420]`. */
export interface Reference {
  fromSeq: number;
  throughSeq: number;
}

const one = String.raw`m\d{1,9}(?:\s?[-–]\s?m?\d{1,9})?`;
const bracket = new RegExp(String.raw`[ \t]?\[(${one}(?:[,;]\s?${one})*)\]`, 'g');

export function referencesIn(line: string): Reference[] {
  return [...line.matchAll(bracket)].flatMap(([, listed = '']) => listed.split(/[,;]\s?/).map(rangeOf));
}

function rangeOf(written: string): Reference {
  const [from = 0, through = from] = [...written.matchAll(/\d+/g)].map(([digits]) => Number(digits));
  return from <= through ? { fromSeq: from, throughSeq: through } : { fromSeq: through, throughSeq: from };
}

/** The line with its references limited to `range`, since the line can rest on no other messages. */
export function referencesWithin(line: string, range: Reference): string {
  return line.replace(bracket, (whole, listed: string) => {
    const all = listed.split(/[,;]\s?/);
    const kept = all.flatMap((written) => {
      const { fromSeq, throughSeq } = rangeOf(written);
      if (fromSeq >= range.fromSeq && throughSeq <= range.throughSeq) return [written];
      const from = Math.max(fromSeq, range.fromSeq);
      const through = Math.min(throughSeq, range.throughSeq);
      if (from > through) return [];
      return [from === through ? `m${from}` : `m${from}-${through}`];
    });
    if (kept.join() === all.join()) return whole;
    return kept.length === 0 ? '' : ` [${kept.join(', ')}]`;
  });
}

/** The references of a line as written. */
export function writtenReferences(line: string): string {
  return [...line.matchAll(bracket)].map(([whole]) => whole.trim()).join(' ');
}

export function withoutReferences(line: string): string {
  return line.replace(bracket, '').trim();
}
