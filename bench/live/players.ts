/** Agents that talk at a steady pace over HTTP: a turn, its context, a pause; when a session is over, the next one. */
import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { isFailure } from '../../src/errors.js';
import type { HttpPalimpsest } from '../../src/http-client/index.js';
import { livePolicy, liveSessionOf, type Material } from './material.js';

export interface Phase {
  appends: number[];
  contexts: number[];
  errors: Map<string, number>;
  /** Contexts that cannot fit: an answer, not an error. */
  unreachable: number;
  turns: number;
  /** Unix milliseconds. */
  from: number;
  to: number;
}

export interface PlayedSession {
  session: string;
  /** Of each message that was acknowledged. */
  hashes: string[];
  /** Unix milliseconds of the turns that were answered with `due`. */
  due: number[];
  /** A turn of it failed, so later ones were not sent. */
  broken: boolean;
}

export const hashOf = (message: unknown): string =>
  createHash('sha256').update(JSON.stringify(message)).digest('base64').slice(0, 22);

export class Players {
  readonly sessions: PlayedSession[] = [];
  private phase: Phase = newPhase();
  private stopped = false;
  private readonly lanes: Promise<void>[];

  constructor(
    private readonly client: HttpPalimpsest,
    private readonly material: Material,
    count: number,
    private readonly pauseMs: number,
  ) {
    this.lanes = Array.from({ length: count }, (_, player) => this.play(player));
  }

  /** The measurements since the last call; a new phase begins. */
  next(): Phase {
    const ended = { ...this.phase, to: Date.now() };
    this.phase = newPhase();
    return ended;
  }

  async stop(): Promise<void> {
    this.stopped = true;
    await Promise.all(this.lanes);
  }

  private async play(player: number): Promise<void> {
    // Spread over the pause, as people are.
    await sleep(Math.random() * this.pauseMs);
    for (let round = 0; !this.stopped; round++) await this.playSession(player, round);
  }

  private async playSession(player: number, round: number): Promise<void> {
    const session = `live-${player}-${round}`;
    const script = liveSessionOf(this.material, player * 13 + round * 31, session);
    const played: PlayedSession = { session, hashes: [], due: [], broken: false };
    this.sessions.push(played);
    for (let turn = 0; turn < script.length && !this.stopped && !played.broken; turn++) {
      const began = performance.now();
      await this.takeTurn(played, turn, script[turn]!);
      await sleep(Math.max(0, this.pauseMs * (0.5 + Math.random()) - (performance.now() - began)));
    }
    if (!played.broken) await this.client.closeSession({ session: played.session }).catch(() => undefined);
  }

  private async takeTurn(
    played: PlayedSession,
    turn: number,
    messages: Parameters<HttpPalimpsest['appendTurn']>[0]['messages'],
  ): Promise<void> {
    const { session } = played;
    const { phase, client } = this;
    const policy = turn === 0 ? { policy: livePolicy } : {};
    try {
      const start = performance.now();
      const { due } = await client.appendTurn({ session, turnId: `t-${turn}`, messages, ...policy });
      phase.appends.push(performance.now() - start);
      phase.turns++;
      for (const message of messages) played.hashes.push(hashOf(message));
      if (due) played.due.push(Date.now());
    } catch (error) {
      played.broken = true;
      return count(phase, error);
    }
    try {
      const start = performance.now();
      await client.context({ session });
      phase.contexts.push(performance.now() - start);
    } catch (error) {
      if (isFailure(error, 'Budget.Unreachable')) phase.unreachable++;
      else count(phase, error);
    }
  }
}

function count({ errors }: Phase, error: unknown): void {
  const type = isFailure(error) ? `${error.type}: ${error.message.slice(0, 120)}` : String(error);
  errors.set(type, (errors.get(type) ?? 0) + 1);
}

const newPhase = (): Phase => ({
  ...{ appends: [], contexts: [], errors: new Map(), unreachable: 0, turns: 0 },
  ...{ from: Date.now(), to: 0 },
});
