/** What a request asks to be summarized, and words of it for scripted answers: a summary holds something of its record. */

/** The data between the delimiters of a request's last message, else the whole of it. */
export function materialIn(content: string): string {
  const delimited = [...content.matchAll(/<(\w+ [0-9a-f]{16}(?: \d+)?)>\n([\s\S]*?)\n<\/\1>/g)].map(
    ([, , data = '']) => data,
  );
  return delimited.length > 0 ? delimited.join('\n') : content;
}

/** Distinct longer words of a material, in its order, without labels. */
export function wordsFrom(material: string, most = 16): string[] {
  const said = material.replace(/<\/?(?:message|call|media)\b[^>\n]{0,400}>/g, ' ');
  const found = new Set<string>();
  for (const [word] of said.matchAll(/[\p{L}\p{N}]{3,}/gu)) {
    if (found.size === most) break;
    found.add(word);
  }
  return [...found];
}

/** A text as the summary of a request's last message: with one more bullet that holds words of the record. */
export function saidOf(
  text: string,
  { messages }: { messages: readonly { content: string }[] },
  most?: number,
): string {
  return `${text}\n- Spoke of ${wordsFrom(materialIn(messages.at(-1)?.content ?? ''), most).join(', ')}`;
}
