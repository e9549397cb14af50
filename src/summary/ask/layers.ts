/**
 * Entries of a journal; and, for plans of earlier versions, layers: immutable leaf summaries, merged four of a rank at a time, so that what is said in one is rewritten at
 * most 1 + log₄ n times among n leaves. Older ranks are shorter, so the whole stays within its room for any n.
 */

/** A leaf or merged summary; its text is the digest of this key. */
export interface Layer {
  /** 0 for a leaf; merging four of a rank gives one of the next. */
  rank: number;
  /** `journal` mode: merges that its lines went through in the mean. Absent: `rank`. */
  rewrites?: number;
  key: string;
  tokens: number;
  fromSeq: number;
  throughSeq: number;
  /** Made by rule because no model answered; read again once one does. */
  extractive?: boolean;
  /** `journal` mode: tokens of what code has put behind the text. */
  addedTokens?: number;
  /** `journal` mode: first and last day on which its messages were said, in UTC, `2023-05-07`; absent where nobody told. */
  days?: [string, string];
  /** `journal` mode: the room was used up, a line that points to the archive stands for it. */
  left?: boolean;
}

/** A layer as it is kept with its generation: a plan, which travels, leaves the text out. */
export interface KeptLayer extends Layer {
  /** `journal` mode: lines that code has put behind the text. */
  added?: string;
  /** `journal` mode: exact values that the tail held still. */
  waiting?: string;
}

/** Layers of one rank that become one of the next. */
export const FAN_IN = 4;
/** No layer is asked to be shorter than this, tokens. */
const SHORTEST_LAYER = 48;

/**
 * Longest layer of a rank, tokens, where all layers together have `room`: a sixth for a leaf, half as much for each
 * further rank. Three of each rank then never exceed the room, but for the floor of ranks above the third.
 */
export function layerTokens(rank: number, room: number): number {
  return Math.max(SHORTEST_LAYER, Math.floor(room / (6 * 2 ** rank)));
}

/** The four oldest neighbours of the lowest rank that has four, by index of the first; null where no rank has. */
export function nextMerge(layers: readonly Layer[]): { first: number; rank: number } | null {
  const ranks = [...new Set(layers.map(({ rank }) => rank))].sort((a, b) => a - b);
  for (const rank of ranks) {
    const first = layers.findIndex(
      (_, index) =>
        index + FAN_IN <= layers.length &&
        layers.slice(index, index + FAN_IN).every((layer) => layer.rank === rank),
    );
    if (first !== -1) return { first, rank };
  }
  return null;
}
