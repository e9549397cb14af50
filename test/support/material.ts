/** The material of a request, and words of it for scripted answers: a summary must have content of its record. */

/** The data between the delimiters of a request's last message, else the whole of it. */
export function materialIn(content: string): string {
  const delimited = [...content.matchAll(/<(\w+ \d{12}(?: \d+)?)>\n([\s\S]*?)\n<\/\1>/g)].map(
    ([, , data = '']) => data,
  );
  return delimited.length > 0 ? delimited.join('\n') : content;
}

/** The messages of a request without the text around them, except the names of tools. */
export function withoutLabels(material: string): string {
  return material
    .replace(/<\/?(?:message|call|media)\b([^>\n]{0,400})>/g, (_tag, attributes: string) =>
      [' ', ...[...attributes.matchAll(/ name="([^"]*)"/g)].map(([, name = '']) => name), ' '].join(' '),
    )
    .replace(/^## .*$/gm, ' ');
}

/** Characters that are looked at. */
const looked = 20_000;

/** The longest words of a material and some of its numbers, each once, in its order. */
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

/** A text as a summary of a request's last message: with one more bullet that has words of the record. */
export function saidOf(
  text: string,
  { messages }: { messages: readonly { content: string }[] },
  most?: number,
): string {
  return `${text}\n- ${wordsFrom(materialIn(messages.at(-1)?.content ?? ''), most).join(', ')}`;
}
