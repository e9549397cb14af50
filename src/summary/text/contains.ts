/** Whether a text holds an atom word for word and whole: `item_1` is not held by `item_10`, nor `src/a.ts` by `src/a.tsx`. */
export function containsAtom(text: string, atom: string): boolean {
  if (atom === '') return true;
  for (let at = text.indexOf(atom); at >= 0; at = text.indexOf(atom, at + 1)) {
    const before = isWordChar(text.charCodeAt(at - 1)) && isWordChar(atom.charCodeAt(0));
    const end = at + atom.length;
    const after = isWordChar(text.charCodeAt(end)) && isWordChar(atom.charCodeAt(atom.length - 1));
    if (!before && !after) return true;
  }
  return false;
}

function isWordChar(code: number): boolean {
  return (
    (code >= 48 && code <= 57) || (code >= 65 && code <= 90) || (code >= 97 && code <= 122) || code === 95
  );
}
