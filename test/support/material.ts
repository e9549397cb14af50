/**
 * The material of a request (its data, without the instructions). Scripted answers use words of the material, because a summary
 * must have content of its record.
 */

/** Returns the data between the delimiters in a request's last message; the whole message if it has no delimiters. */
export function materialIn(content: string): string {
  const delimited = [...content.matchAll(/<(\w+ \d{12}(?: \d+)?)>\n([\s\S]*?)\n<\/\1>/g)].map(
    ([, , data = '']) => data,
  );
  return delimited.length > 0 ? delimited.join('\n') : content;
}

/** Returns the messages of a material without their labels, except for the names in the labels. */
export function withoutLabels(material: string): string {
  return material
    .replace(/<\/?(?:message|call|media)\b([^>\n]{0,400})>/g, (_tag, attributes: string) =>
      [' ', ...[...attributes.matchAll(/ name="([^"]*)"/g)].map(([, name = '']) => name), ' '].join(' '),
    )
    .replace(/^## .*$/gm, ' ');
}

/** Maximum characters that are read. */
const looked = 20_000;

/** Returns the longest words of a material in their order, then some of its numbers, each once. */
export function wordsFrom(material: string, most = 16): string[] {
  const said = withoutLabels(material.slice(0, looked));
  const words = [...new Set(said.match(/[\p{L}]{3,24}/gu))];
  const numbers = [...new Set(said.match(/\b(?=[a-z\d]{2,16}\b)[a-z]*\d[a-z\d]*/gi))].slice(
    0,
    Math.ceil(most / 5),
  );
  const longest = words.toSorted((a, b) => b.length - a.length).slice(0, Math.max(1, most - numbers.length));
  return [...words.filter((word) => longest.includes(word)), ...numbers];
}

/** Makes a text a summary of a request's last message: adds a bullet with words of the record. */
export function saidOf(
  text: string,
  { messages }: { messages: readonly { content: string }[] },
  most?: number,
): string {
  return `${text}\n- ${wordsFrom(materialIn(messages.at(-1)?.content ?? ''), most).join(', ')}`;
}
