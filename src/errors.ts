/**
 * The types of all failures of this product. They appear as failure types in the Temporal UI, as `type` in JSON output, and in
 * docs/failures.md with the action to take.
 */
export const failureTypes = [
  'Input.Invalid',
  'Input.TooLarge',
  'Llm.RateLimited',
  'Llm.Unavailable',
  'Llm.ContextOverflow',
  'Llm.Rejected',
  'Llm.BadOutput',
  'Llm.InFlight',
  'Summary.NotSmaller',
  'Summary.PinsLost',
  'Summary.DepthExceeded',
  'Store.StaleGeneration',
  'Store.StaleAppend',
  'Store.TurnConflict',
  'Store.ListEdited',
  'Store.SessionNotFound',
  'Store.BackfillNotFound',
  'Store.TokenNotFound',
  'Store.DigestGone',
  'Store.Corrupt',
  'Store.Busy',
  'Store.Unavailable',
  'Temporal.Unavailable',
  'Payload.Unreadable',
  'Identity.Unavailable',
  'Worker.Failed',
  'Budget.Unreachable',
  'Api.Unavailable',
  'Api.Unauthorized',
  'Api.Forbidden',
  'Api.Overloaded',
  'Api.Failed',
  'Tenant.LimitReached',
  'Tenant.BeyondLimit',
] as const;

export type FailureType = (typeof failureTypes)[number];

export function isFailureType(type: string): type is FailureType {
  return (failureTypes as readonly string[]).includes(type);
}

export interface FailureDetails {
  /** Path of the offending field, e.g. `messages[3].tool_calls[0].id` or `policy.trigger[0].fraction`. */
  path?: string;
  /** The next step for the reader. */
  hint?: string;
  /** Plain JSON numbers and names that explain the failure; never message text. */
  details?: Record<string, string | number | boolean | null>;
  cause?: unknown;
  /** The same failure for tenants, if this one has texts or addresses of a server that only the operator may read. */
  forTenants?: PalimpsestError;
}

/** A typed failure. Its message says what is wrong, its `path` says where, and its `hint` gives the next step. */
export class PalimpsestError extends Error {
  readonly path?: string;
  readonly hint?: string;
  readonly details?: Record<string, string | number | boolean | null>;
  readonly forTenants?: PalimpsestError;

  constructor(
    readonly type: FailureType,
    message: string,
    { path, hint, details, cause, forTenants }: FailureDetails = {},
  ) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'PalimpsestError';
    this.path = path;
    this.hint = hint;
    this.details = details;
    if (forTenants !== undefined) this.forTenants = forTenants;
  }
}

export function invalid(message: string, path?: string, hint?: string): PalimpsestError {
  return new PalimpsestError('Input.Invalid', message, { path, hint });
}

/** The same failure, with these words and details in place of its own. */
export function restated(
  failure: PalimpsestError,
  { message = failure.message, ...other }: FailureDetails & { message?: string },
): PalimpsestError {
  return new PalimpsestError(failure.type, message, { ...failure, cause: failure.cause, ...other });
}

/** Knows failures of other copies of this code, too: a process may load `palimpsest` and `palimpsest-client`. */
export function isFailure(error: unknown, type?: FailureType): error is PalimpsestError {
  if (!(error instanceof Error) || error.name !== 'PalimpsestError' || !('type' in error)) return false;
  return type === undefined || error.type === type;
}

const networkReasons: Readonly<Record<string, (where: string) => string>> = {
  ECONNREFUSED: (where) => `nothing listens at ${where}`,
  ENOTFOUND: (where) => `there is no host ${where}`,
  EAI_AGAIN: (where) => `the name of ${where} cannot be resolved now`,
  ETIMEDOUT: (where) => `${where} cannot be reached`,
  EHOSTUNREACH: (where) => `${where} cannot be reached`,
  ENETUNREACH: (where) => `${where} cannot be reached`,
  ECONNRESET: () => 'the connection broke',
  EPIPE: () => 'the connection broke',
};
/** Finds, for example, `connect ECONNREFUSED 127.0.0.1:5432` anywhere in the message of a library. */
const networkCode = new RegExp(
  `\\b(${Object.keys(networkReasons).join('|')})\\b(?: ([\\w.:[\\]-]*[\\w\\]]))?`,
);

/** The reason, in words, why a connection failed or broke; null for failures of another kind. */
export function networkReason(error: unknown): string | null {
  // A host with several addresses fails with one error for each. Causes may be circular.
  const seen = new Set<unknown>();
  for (const waiting = [error]; waiting.length > 0;) {
    const next = waiting.shift();
    if (!(next instanceof Error) || seen.has(next)) continue;
    seen.add(next);
    const code = 'code' in next ? String(next.code) : '';
    const [, known = '', where = 'that address'] = networkCode.exec(`${next.message}\n${code}`) ?? [];
    const reason = networkReasons[known];
    const several: unknown[] = next instanceof AggregateError ? next.errors : [];
    if (reason && several.length === 0) return reason(where);
    waiting.push(...several, next.cause);
  }
  return null;
}

/** The database is away, or another transaction holds a lock: the same call may succeed later. */
export function isPassingFailureOfStore(error: unknown): error is PalimpsestError {
  return isFailure(error, 'Store.Unavailable') || isFailure(error, 'Store.Busy');
}

/**
 * Failures of the model, and the operator's limits on its calls, after which a deterministic summary may be used. A defect or a
 * lost database is not one of them.
 */
export function isModelFailure(error: unknown): error is PalimpsestError {
  return isFailure(error) && isModelFailureType(error.type);
}

export function isModelFailureType(type: string): boolean {
  return type.startsWith('Llm.') || type.startsWith('Summary.') || type === 'Tenant.BeyondLimit';
}
