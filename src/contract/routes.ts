/** Method and path of every operation. Plain data without zod: the HTTP client uses it and needs no package. */

export interface Route {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** In OpenAPI's syntax. The client fills `{session}` from the field of that name. */
  path: string;
  /** The request may be sent again if it is unknown whether it arrived. @default true for GET */
  repeatable?: true;
  /** Field of the answer that the client returns; the whole answer if absent. */
  answer?: string;
}

const session = '/v1/sessions/{session}';
const job = '/v1/backfills/{job}';

export const routes = {
  // A turn is stored once under its id, however often it arrives.
  appendTurn: { method: 'POST', path: `${session}/turns`, repeatable: true },
  context: { method: 'GET', path: `${session}/context` },

  sessions: { method: 'GET', path: '/v1/sessions' },
  erase: { method: 'DELETE', path: session },
  status: { method: 'GET', path: `${session}/status` },
  settled: { method: 'GET', path: `${session}/settled` },
  closeSession: { method: 'POST', path: `${session}/close` },
  pause: { method: 'POST', path: `${session}/pause` },
  resume: { method: 'POST', path: `${session}/resume` },
  compact: { method: 'POST', path: `${session}/compact` },
  resummarize: { method: 'POST', path: `${session}/resummarize` },

  tenantPolicy: { method: 'GET', path: '/v1/policy' },
  configureTenant: { method: 'PUT', path: '/v1/policy' },
  policy: { method: 'GET', path: `${session}/policy` },
  configure: { method: 'PUT', path: `${session}/policy` },
  pins: { method: 'GET', path: `${session}/pins` },
  pin: { method: 'PUT', path: `${session}/pins` },

  compactions: { method: 'GET', path: `${session}/compactions`, answer: 'compactions' },
  timeline: { method: 'GET', path: `${session}/timeline` },
  archiveParts: { method: 'GET', path: `${session}/archive`, answer: 'parts' },
  archivePart: { method: 'GET', path: `${session}/archive/{part}`, answer: 'messages' },
  replay: { method: 'GET', path: `${session}/replay` },
  export: { method: 'GET', path: `${session}/export` },
  expand: { method: 'GET', path: `${session}/messages` },
  search: { method: 'POST', path: `${session}/search`, repeatable: true },
  toolResponse: { method: 'GET', path: `${session}/tool-response` },
  historyLog: { method: 'GET', path: `${session}/history` },
  restore: { method: 'POST', path: `${session}/restore` },
  fork: { method: 'POST', path: `${session}/fork` },

  startBackfill: { method: 'POST', path: '/v1/backfills' },
  backfills: { method: 'GET', path: '/v1/backfills', answer: 'backfills' },
  estimateBackfill: { method: 'POST', path: '/v1/backfills/estimate', repeatable: true },
  backfill: { method: 'GET', path: job },
  backfillItems: { method: 'GET', path: `${job}/items` },
  pauseBackfill: { method: 'POST', path: `${job}/pause` },
  resumeBackfill: { method: 'POST', path: `${job}/resume` },
  cancelBackfill: { method: 'POST', path: `${job}/cancel` },
  resizeBackfill: { method: 'POST', path: `${job}/resize` },
  retryBackfill: { method: 'POST', path: `${job}/retry` },
} as const satisfies Record<string, Route>;

export type OperationId = keyof typeof routes;

/** The route of an operation, with the general type. */
export function routeOf(id: OperationId): Route {
  return routes[id];
}

/** Longest time, in milliseconds, that a context read waits for a compaction. */
export const longestWaitMs = 300_000;
