export interface TokenCounter {
  readonly name: TokenizerName;
  /**
   * Tokens of a text, special tokens such as `<|endoftext|>` taken as plain text. Linear time. Only a custom counter
   * that fails throws: `Input.Invalid`.
   */
  count(text: string): number;
}

/**
 * How text is weighed. `o200k_base` and `cl100k_base` are OpenAI's byte-pair encodings; `chars/4` and `chars/3.3`
 * estimate from characters where the vendor publishes no tokenizer.
 */
export const tokenizerNames = ['o200k_base', 'cl100k_base', 'chars/4', 'chars/3.3'] as const;

export type TokenizerName = (typeof tokenizerNames)[number] | `custom:${string}`;
