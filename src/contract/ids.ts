import { invalid } from '../errors.js';

/** Owner and one conversation. Both are free text of the platform, at most 200 bytes each once percent-encoded. */
export interface SessionIds {
  tenant: string;
  session: string;
  /**
   * Of the session as the caller has read it: what is done then holds for that one only, never for another one that was
   * begun under the same id after an erasure. Absent: whichever session has the id.
   */
  incarnation?: string;
}

const maxIdBytes = 200;

const wellFormed = 'Any Unicode text without NUL will do as an id.';

/** One id part, percent-encoded so that `/` stays a separator. Throws `Input.Invalid` naming the field. */
export function encodeIdPart(value: string, field: string): string {
  if (typeof value !== 'string' || value.length === 0)
    throw invalid(`${field} must be a non-empty string`, field, wellFormed);
  let encoded: string;
  try {
    encoded = encodeURIComponent(value);
  } catch {
    throw invalid(`${field} holds half of a surrogate pair`, field, wellFormed);
  }
  // Postgres text cannot hold NUL.
  if (value.includes('\u0000')) throw invalid(`${field} holds a NUL character`, field, wellFormed);
  if (encoded.length > maxIdBytes) {
    throw invalid(
      `${field} takes ${encoded.length} bytes percent-encoded, at most ${maxIdBytes} are allowed`,
      field,
      'Use a shorter id, for instance a UUID or a hash.',
    );
  }
  return encoded;
}

export interface BackfillIds {
  tenant: string;
  job: string;
}
