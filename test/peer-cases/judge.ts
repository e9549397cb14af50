/** A check's answer: the deviation, or null. */
export const same = (found: unknown, expected: unknown): string | null =>
  JSON.stringify(found) === JSON.stringify(expected)
    ? null
    : `is ${JSON.stringify(found)}, not ${JSON.stringify(expected)}`;

export const holds = (condition: boolean, otherwise: string): string | null => (condition ? null : otherwise);
