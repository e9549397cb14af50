import { invalid } from '../errors.js';

/** A tenant and one of its sessions. Both ids are free text of the platform, at most 200 bytes each once percent-encoded. */
export interface SessionIds {
  tenant: string;
  session: string;
  /**
   * Incarnation of the session as the caller has read it. The operation then applies to this session only, never to
   * another one that was begun under the same id after an erasure. Absent: any session with the id.
   */
  incarnation?: string;
}

export interface BackfillIds {
  tenant: string;
  job: string;
}

/** Bytes of a percent-encoded part of a workflow id: tenant, session or job. */
const mostInWorkflowId = 200;
/** Bytes in UTF-8. Three ids must fit into one index entry of PostgreSQL (2,704 bytes). */
const mostStored = 512;

/** `part`: in a workflow id. `stored`: in PostgreSQL only. */
type IdPlace = 'part' | 'stored';

/** The fault of an id; null for a valid one. All checks of ids use this rule. */
export function idFault(id: unknown, place: IdPlace = 'part'): { problem: string; hint: string } | null {
  const hint = 'Use any Unicode text without NUL, for instance a UUID or a hash.';
  if (typeof id !== 'string' || id === '') return { problem: 'must be a non-empty string', hint };
  // A text in PostgreSQL cannot hold NUL.
  if (id.includes('\u0000')) return { problem: 'contains a NUL character', hint };
  const encoded = percentEncoded(id);
  if (encoded === null) return { problem: 'contains half of a surrogate pair', hint };
  const shorter = 'Use a shorter id, for instance a UUID or a hash.';
  const stored = encoded.replace(/%../g, '-').length;
  if (place === 'part' && encoded.length > mostInWorkflowId)
    return {
      problem: `takes ${encoded.length} bytes percent-encoded, but at most ${mostInWorkflowId} are allowed`,
      hint: shorter,
    };
  if (stored > mostStored)
    return { problem: `takes ${stored} bytes, but at most ${mostStored} are allowed`, hint: shorter };
  return null;
}

function percentEncoded(id: string): string | null {
  try {
    return encodeURIComponent(id);
  } catch {
    return null;
  }
}

/** Throws `Input.Invalid` naming the field. */
export function checkId(id: unknown, field: string, place?: IdPlace): void {
  const fault = idFault(id, place);
  if (fault) throw invalid(`${field} ${fault.problem}`, field, fault.hint);
}

/** Percent-encodes one part of an id, so that `/` remains a separator. Throws `Input.Invalid` naming the field. */
export function encodeIdPart(id: string, field: string): string {
  checkId(id, field);
  return encodeURIComponent(id);
}
