/** What a run has seen so far: violations, failures by type, and counts for the report. */
import { isFailure } from '../../src/errors.js';

export interface Violation {
  kind: string;
  what: string;
}

export class Observations {
  readonly violations: Violation[] = [];
  /** How often each call failed with each type. */
  readonly failures = new Map<string, number>();
  /** How often each fault and each act of an operator took place. */
  readonly acts = new Map<string, number>();
  contexts = 0;
  erasures = 0;
  /** Unix milliseconds since when nothing is broken on purpose; Infinity while something may be. */
  calmSince = Infinity;

  calm(): boolean {
    return this.calmSince !== Infinity;
  }

  violation(kind: string, what: string): void {
    this.violations.push({ kind, what });
  }

  act(what: string): void {
    this.acts.set(what, (this.acts.get(what) ?? 0) + 1);
  }

  /** Faults make calls fail, but each failure must have a type and must not be unexpected. */
  failed(what: string, error: unknown): void {
    const type = isFailure(error) ? error.type : 'untyped';
    const key = `${what}: ${type}`;
    this.failures.set(key, (this.failures.get(key) ?? 0) + 1);
    if (type === 'untyped' || type === 'Api.Failed')
      this.violation('untyped failure', `${what}: ${String(error)}`);
  }
}
