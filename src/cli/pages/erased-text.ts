import type { Erased } from '../../contract/client.js';
import { plural } from '../terminal/numbers.js';

/** What an erasure has deleted, in a sentence or two. */
export function erasedText(session: string, erased: Erased): string {
  const { messages, generations, digests, forks, executions, remaining } = erased;
  const deleted = [
    plural(messages, 'message'),
    plural(generations, 'generation'),
    plural(digests, 'digest'),
    plural(executions, 'execution'),
  ].join(', ');
  const with_ = forks === 0 ? '' : ` with ${plural(forks, 'fork')}`;
  return `${session} is erased${with_}: ${deleted}.${leftOf(remaining)}`;
}

function leftOf(remaining: number | null): string {
  if (remaining === 0) return '';
  const what =
    remaining === null ? 'Temporal did not answer: its executions' : `${plural(remaining, 'more execution')}`;
  return ` ${what} will be deleted by the next sweep, or when this is repeated.`;
}
