/** The messages that a line of the memory rests on, written last on the line: `[m412]`, `[m412-415]`, `[m412, m420]`. */
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

/** The line without references to messages that it cannot rest on. */
export function withoutStrayReferences(line: string, isKnown: (reference: Reference) => boolean): string {
  return line.replace(bracket, (whole, listed: string) => {
    const all = listed.split(/[,;]\s?/);
    const known = all.filter((written) => isKnown(rangeOf(written)));
    if (known.length === all.length) return whole;
    return known.length === 0 ? '' : ` [${known.join(', ')}]`;
  });
}

/** The references of a line, as they are written. */
export function writtenReferences(line: string): string {
  return [...line.matchAll(bracket)].map(([whole]) => whole.trim()).join(' ');
}

export function withoutReferences(line: string): string {
  return line.replace(bracket, '').trim();
}
