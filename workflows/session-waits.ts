import { startTimer, type Timer } from './timer.js';

/** The first wait for a compaction of another parent, and the shortest wait before a retry. */
export const lookAgainMs = 2_000;

/**
 * The timers of a session: until it ends unused, until the next attempt after a failure, until the provider's cache is cold.
 */
export class SessionWaits {
  private lastMessageAt = Date.now();
  private idle: Timer | null = null;
  private retry: Timer | null = null;
  /** Set while the context is large enough to be compacted once the provider's cache is cold. */
  private cold: { timer: Timer; afterMs: number } | null = null;

  constructor(public idleAfterMs: number) {}

  /** Restarts the count of quiet time. */
  heard(): void {
    this.lastMessageAt = Date.now();
  }

  startIdle(ms = this.idleAfterMs): void {
    this.idle = startTimer(ms, 'idle');
  }

  /** False while a retry or a cold cache is pending. */
  get isIdle(): boolean {
    return this.idle?.fired === true && !this.isAwaited;
  }

  /** Restarts the timer if a message came after it was set. */
  hasBeenQuiet(): boolean {
    const quietFor = Date.now() - this.lastMessageAt;
    if (quietFor >= this.idleAfterMs) return true;
    this.startIdle(this.idleAfterMs - quietFor);
    return false;
  }

  /** True while a retry or a cold cache is pending. Timers are not carried over; a measurement computes the remaining time. */
  get isAwaited(): boolean {
    return this.retry !== null || this.cold !== null;
  }

  get isRetryDue(): boolean {
    return this.retry?.fired === true;
  }

  /**
   * `notBefore` is in Unix milliseconds. It comes from the worker's clock, but the server runs the timer; a difference between
   * the two must not cause a busy loop.
   */
  retryAt(notBefore: number | null): void {
    if (notBefore === null) this.endRetry();
    else this.retry ??= startTimer(Math.max(lookAgainMs, notBefore - Date.now()), 'before the next attempt');
  }

  retryMeasuring(): void {
    this.retry ??= startTimer(lookAgainMs, 'before measuring again');
  }

  endRetry(): void {
    this.retry = null;
  }

  get isCacheCold(): boolean {
    return this.cold?.timer.fired === true;
  }

  /**
   * Null means that the context is not worth compacting for a cold cache. A running timer is kept; when it fires, it checks how
   * long the session has been quiet.
   */
  coldAfter(afterMs: number | null): void {
    if (afterMs === null) this.cold = null;
    else this.cold ??= { timer: startTimer(afterMs, 'until the cache is cold'), afterMs };
  }

  /** Returns true once if no message came after the timer was set; otherwise sets it again for the rest. */
  takeCold(): boolean {
    if (this.cold === null) return false;
    const { afterMs } = this.cold;
    const quietFor = Date.now() - this.lastMessageAt;
    this.cold = null;
    if (quietFor >= afterMs) return true;
    this.cold = { timer: startTimer(afterMs - quietFor, 'until the cache is cold'), afterMs };
    return false;
  }
}
