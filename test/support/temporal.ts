import { randomUUID } from 'node:crypto';
import { inject } from 'vitest';

/** Returns host:port of the Temporal server of this test run. */
export function temporalAddress(): string {
  return inject('temporalAddress');
}

/** Returns a prefix of task queues that no other test uses, so that all tests can share one server. */
export function uniqueQueuePrefix(): string {
  return `test-${randomUUID().slice(0, 8)}`;
}
