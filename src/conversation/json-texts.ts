/**
 * Yields the text that `JSON.stringify` makes of an object, in parts: each field is a part, and each element of a field that is
 * a list. Other work can run between two parts of a large object.
 */
export function* jsonTexts(object: object): Generator<string> {
  let before = '{';
  for (const [key, field] of Object.entries(object) as [string, unknown][]) {
    if (field === undefined) continue;
    const name = `${before}${JSON.stringify(key)}:`;
    before = ',';
    if (Array.isArray(field)) yield* textsOfList(name, field);
    else yield `${name}${JSON.stringify(field)}`;
  }
  yield before === '{' ? '{}' : '}';
}

function* textsOfList(name: string, list: readonly unknown[]): Generator<string> {
  let before = `${name}[`;
  for (const element of list) {
    yield `${before}${element === undefined ? 'null' : JSON.stringify(element)}`;
    before = ',';
  }
  yield list.length === 0 ? `${name}[]` : ']';
}
