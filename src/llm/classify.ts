import { APIConnectionError, APIConnectionTimeoutError, APIError, APIUserAbortError } from 'openai';
import { type FailureDetails, PalimpsestError, type FailureType } from '../errors.js';
import { EndpointRefusal, quote, saysContextOverflow } from './refusal.js';

/**
 * A server may request any delay; a longer wait than this would hide an outage instead of bridging it. @internal Tests check
 * values on either side.
 */
export const longestRetryAfterMs = 15 * 60_000;

/** A call that its caller cancelled, which is not a failure. The name makes Temporal report the activity as cancelled. */
export class CallAborted extends Error {
  override readonly name = 'AbortError';

  constructor(reason: unknown) {
    super('The model call was cancelled.', { cause: reason });
  }
}

export function isAbort(error: unknown): boolean {
  return error instanceof APIUserAbortError || (error instanceof Error && error.name === 'AbortError');
}

export interface CallContext {
  model: string;
  /** Shown in hints. */
  baseUrl: string;
  timeoutMs: number;
  /** Masked in every quoted message. */
  apiKey: string;
  /** The texts that were sent; a failure never repeats them. */
  prompts: readonly string[];
}

/**
 * Returns the typed failure for a failed call. Connection errors, timeouts and aborts have no status in `openai`, so the class
 * is checked first. Aborts, and errors that the endpoint did not cause (defects of ours), are returned unchanged.
 */
export function classify(error: unknown, context: CallContext): unknown {
  if (error instanceof PalimpsestError || isAbort(error)) return error;
  if (error instanceof EndpointRefusal) return refused(error, context);
  if (error instanceof APIConnectionTimeoutError) {
    return ofEndpoint(context, 'Llm.Unavailable', (where) => ({
      message: `The model endpoint did not answer within ${context.timeoutMs} ms.`,
      hint: `The call is retried later. If this happens often, ${where} is overloaded or the chunks are too large for it.`,
    }));
  }
  if (error instanceof APIConnectionError) {
    const code = causeCode(error);
    return ofEndpoint(context, 'Llm.Unavailable', (where) => ({
      message: `The connection to the model endpoint failed${code && ` (${code})`}.`,
      hint: `The call is retried later. Check that ${where} (OPENAI_BASE_URL) is up and reachable from the worker.`,
      details: code ? { code } : undefined,
    }));
  }
  if (error instanceof APIError && error.status !== undefined) {
    const { status, headers } = error as APIError<number, Headers | undefined>;
    return refused(
      new EndpointRefusal(
        status,
        { message: error.message, code: '', type: '', param: '' },
        headers ?? new Headers(),
      ),
      context,
    );
  }
  return error;
}

/** Tenants get the failure without the endpoint's address and words. */
function ofEndpoint(
  { baseUrl }: CallContext,
  type: FailureType,
  told: (where: string, isTenant: boolean) => FailureDetails & { message: string },
): PalimpsestError {
  const tenants = told('the endpoint', true);
  const own = told(baseUrl, false);
  const forTenants = new PalimpsestError(type, tenants.message, tenants);
  return new PalimpsestError(type, own.message, { ...own, forTenants });
}

function refused(refusal: EndpointRefusal, context: CallContext): PalimpsestError {
  const type = typeOf(refusal);
  const said = quote(refusal.error.message, context);
  const codeLike = (form: RegExp) =>
    [refusal.error.code, refusal.error.type].find((word) => form.test(word)) ?? null;
  const retryAfterMs =
    type === 'Llm.RateLimited' || type === 'Llm.Unavailable' ? retryAfter(refusal.headers, Date.now()) : null;
  return ofEndpoint(context, type, (where, isTenant) => {
    const code = codeLike(isTenant ? /^[a-z_]{1,64}$/i : /^[\w.:-]{1,64}$/);
    const status = [refusal.status, code].filter(Boolean).join(' ');
    return {
      message: `${whatHappened[type]} (${status})${isTenant || said === '' ? '' : `: ${said}`}`,
      hint: hintFor(type, refusal, { ...context, baseUrl: where }),
      details: {
        status: refusal.status,
        ...(code === null ? {} : { code }),
        ...(type === 'Llm.Rejected' && isFiltered(refusal) ? { filtered: true } : {}),
        ...(retryAfterMs === null ? {} : { retryAfterMs }),
      },
    };
  });
}

type RefusalType = Extract<
  FailureType,
  'Llm.RateLimited' | 'Llm.Unavailable' | 'Llm.ContextOverflow' | 'Llm.Rejected'
>;

const whatHappened: Record<RefusalType, string> = {
  'Llm.RateLimited': 'The model endpoint limits the rate',
  'Llm.Unavailable': 'The model endpoint cannot answer now',
  'Llm.ContextOverflow': 'The request is larger than what the model can read',
  'Llm.Rejected': 'The model endpoint refuses the request',
};

function typeOf(refusal: EndpointRefusal): RefusalType {
  const { status } = refusal;
  if (saysContextOverflow(status, refusal.text)) return 'Llm.ContextOverflow';
  if (isOutOfMoney(refusal) || isFiltered(refusal)) return 'Llm.Rejected';
  const transient = status === 408 || status === 409 || status === 425 || status === 429 || status >= 500;
  const advice = refusal.headers.get('x-should-retry');
  if (advice === 'false' || (advice !== 'true' && !transient)) return 'Llm.Rejected';
  return status === 429 ? 'Llm.RateLimited' : 'Llm.Unavailable';
}

/** Decided by code, not by text: Gemini also says "exceeded your current quota" for a limit per minute. */
function isOutOfMoney({ status, error }: EndpointRefusal): boolean {
  const codes = /^(?:insufficient_quota|exceeded_current_quota_error|billing_\w+|insufficient_balance)$/;
  return status === 402 || codes.test(error.code) || codes.test(error.type);
}

function isFiltered({ status, text }: EndpointRefusal): boolean {
  return (
    status < 500 &&
    status !== 429 &&
    /content_?filter|content_policy|data_inspection_failed|ResponsibleAIPolicyViolation|content management policy/i.test(
      text,
    )
  );
}

function hintFor(type: RefusalType, refusal: EndpointRefusal, { baseUrl, model }: CallContext): string {
  if (type === 'Llm.RateLimited' || type === 'Llm.Unavailable')
    return 'The call is retried after the delay that the endpoint requests.';
  if (type === 'Llm.ContextOverflow') {
    return 'The chunk is halved. If this happens often, lower policy.summary.chunkTokens or set policy.summary.contextWindow.';
  }
  if (isOutOfMoney(refusal))
    return 'The account behind OPENAI_API_KEY has no quota left: add credit, or use another key.';
  if (isFiltered(refusal))
    return 'A content filter refused this text; the policy decides whether the fallback is used.';
  if (refusal.status === 401)
    return `OPENAI_API_KEY is not accepted by ${baseUrl} (OPENAI_BASE_URL): check both.`;
  if (refusal.status === 403)
    return `OPENAI_API_KEY is not allowed to use model "${model}" at ${baseUrl} (OPENAI_BASE_URL).`;
  if (refusal.status === 404 || refusal.status === 405) {
    return `No model "${model}" (PALIMPSEST_SUMMARY_MODEL), or no chat completions API at ${baseUrl} (OPENAI_BASE_URL, usually ending in /v1).`;
  }
  return `The call is not retried. Check model "${model}" (PALIMPSEST_SUMMARY_MODEL) and ${baseUrl} (OPENAI_BASE_URL).`;
}

/**
 * Returns the delay that a server requests, by `retry-after-ms`, or by `retry-after` in seconds or as an HTTP date (RFC 9110
 * §10.2.3), which is compared with the server's own `date` if it sends one. Milliseconds, 0 to 15 minutes; null if it requests
 * no delay. @internal Tests cover every form of the header.
 */
export function retryAfter(headers: Headers, now: number): number | null {
  const bounded = (ms: number): number => Math.round(Math.min(Math.max(ms, 0), longestRetryAfterMs));
  const milliseconds = numberOf(headers.get('retry-after-ms'));
  if (milliseconds !== null) return bounded(milliseconds);
  const value = headers.get('retry-after');
  const seconds = numberOf(value);
  if (seconds !== null) return bounded(seconds * 1000);
  const date = Date.parse(value ?? '');
  if (Number.isNaN(date)) return null;
  const serverNow = Date.parse(headers.get('date') ?? '');
  return bounded(date - (Number.isNaN(serverNow) ? now : serverNow));
}

function numberOf(value: string | null): number | null {
  return value !== null && /^\s*-?\d+(?:\.\d+)?\s*$/.test(value) ? Number(value) : null;
}

/** Returns the code of the deepest cause that has one, such as ECONNREFUSED or UND_ERR_SOCKET, never its text. */
function causeCode(error: Error): string {
  let code = '';
  for (let current: unknown = error.cause; current instanceof Error; current = current.cause) {
    if ('code' in current && typeof current.code === 'string' && /^\w{1,64}$/.test(current.code))
      code = current.code;
  }
  return code;
}
