/**
 * Entries of a journal, and the layers of plans of earlier versions. Layers are immutable leaf summaries. Four layers of one
 * rank are merged at a time, so that each text is rewritten at most 1 + log₄ n times among n leaves. Higher ranks are shorter,
 * so all layers together stay within their limit unless n is very large.
 */

/** A leaf or merged summary; its text is the digest of this key. */
export interface Layer {
  /** 0 for a leaf; merging four layers of a rank gives one layer of the next rank. */
  rank: number;
  /** `journal` mode: mean number of merges of its lines. Absent: `rank`. */
  rewrites?: number;
  key: string;
  tokens: number;
  fromSeq: number;
  throughSeq: number;
  /** Whether the layer was written by rule because no model answered; if so, it is rewritten once a model answers. */
  extractive?: boolean;
  /** `journal` mode: tokens of the lines that code adds after the text. */
  addedTokens?: number;
  /** `journal` mode: first and last day of its messages in UTC, `2023-05-07`; absent if unknown. */
  days?: [string, string];
  /** `journal` mode, earlier versions: dropped for lack of room; a line that points to the archive replaced it. */
  left?: boolean;
}

/** A layer as stored with its generation. A plan, which Temporal carries, leaves the text out. */
export interface KeptLayer extends Layer {
  /** `journal` mode: lines that code adds after the text. */
  added?: string;
  /** `journal` mode: exact values that were still in the tail. */
  waiting?: string;
}

/** Number of layers of one rank that become one layer of the next rank. */
export const FAN_IN = 4;
/** Minimum requested tokens of a layer. */
const SHORTEST_LAYER = 48;

/**
 * Maximum tokens of a layer of this rank if all layers together have `room`: a sixth for a leaf, half as much for each further
 * rank. Three layers of each rank together then stay within the room, unless high ranks get the minimum (`SHORTEST_LAYER`)
 * instead.
 */
export function layerTokens(rank: number, room: number): number {
  return Math.max(SHORTEST_LAYER, Math.floor(room / (6 * 2 ** rank)));
}

/** The index of the four oldest neighbours of the lowest rank with four neighbours; null if no rank has four. */
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
