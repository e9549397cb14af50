import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** An embeddings endpoint in the form of OpenAI's: a real HTTP server on 127.0.0.1, whose vectors and refusals are scripted. */
export interface EmbeddingServer {
  /** Base URL, ending in `/v1`. */
  readonly url: string;
  /** The texts of each request. */
  readonly requests: string[][];
  /** Status and message of every answer from now on; null for vectors. */
  refuse(refusal: { status: number; message: string } | null): void;
  /** Maximum characters of a text. A request with a longer text is refused. */
  longest: number;
  close(): Promise<void>;
}

/** Synonyms share one dimension; the dimension of every other word follows from its letters. */
const concepts = [
  ['dog', 'puppy', 'max', 'rex'],
  ['died', 'dead', 'death', 'goodbye', 'passed'],
  ['car', 'vehicle', 'automobile'],
];

/** @internal The dimensions of its vectors. */
export const dimensions = 64;

export function vectorOf(text: string): number[] {
  const vector = new Array<number>(dimensions).fill(0.001);
  for (const word of text.toLowerCase().match(/\p{L}+/gu) ?? []) {
    const concept = concepts.findIndex((words) => words.includes(word));
    if (concept >= 0) vector[concept]! += 3;
    else vector[8 + ([...word].reduce((sum, letter) => sum + letter.charCodeAt(0), 0) % 56)]! += 0.2;
  }
  return vector;
}

export async function startEmbeddingServer(): Promise<EmbeddingServer> {
  const requests: string[][] = [];
  let refusal: { status: number; message: string } | null = null;
  const state = { longest: Infinity };
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('end', () => {
      const { input } = JSON.parse(Buffer.concat(pieces).toString()) as { input: string[] };
      const tooLong = input.some((text) => text.length > state.longest);
      const refused = tooLong
        ? { status: 400, message: "This model's maximum context length is 8192 tokens." }
        : refusal;
      if (request.url === '/v1/embeddings' && refused === null) requests.push(input);
      const data = input.map((text, index) => ({ object: 'embedding', index, embedding: vectorOf(text) }));
      const body = refused === null ? { object: 'list', data } : { error: { message: refused.message } };
      const status = request.url === '/v1/embeddings' ? (refused?.status ?? 200) : 404;
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    requests,
    refuse: (next) => (refusal = next),
    get longest() {
      return state.longest;
    },
    set longest(length) {
      state.longest = length;
    },
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}
