/** Method, path and scope of every operation. Plain data without zod: the HTTP client uses it and needs no package. */

/** The permissions of a token. No scope includes another one. */
export const scopes = ['append', 'read', 'policy', 'erase', 'backfill', 'admin'] as const;
export type Scope = (typeof scopes)[number];

export interface Route {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** In OpenAPI's syntax. The client fills `{session}` from the field of that name. */
  path: string;
  /** The scope that a token needs. */
  scope: Scope;
  /** The request may be sent again if it is unknown whether it arrived. @default true for GET */
  repeatable?: true;
  /** Field of the answer that the client returns; the whole answer if absent. */
  answer?: string;
}

const session = '/v1/sessions/{session}';
const job = '/v1/backfills/{job}';

export const routes = {
  // A turn is stored once under its id, however often it arrives.
  appendTurn: { method: 'POST', path: `${session}/turns`, scope: 'append', repeatable: true },
  // The same list is stored once.
  sync: { method: 'POST', path: `${session}/sync`, scope: 'append', repeatable: true },
  context: { method: 'GET', path: `${session}/context`, scope: 'read' },

  sessions: { method: 'GET', path: '/v1/sessions', scope: 'read' },
  erase: { method: 'DELETE', path: session, scope: 'erase' },
  eraseMessages: { method: 'POST', path: `${session}/erase-messages`, scope: 'erase', repeatable: true },
  findMessages: { method: 'POST', path: `${session}/find-messages`, scope: 'erase', repeatable: true },
  status: { method: 'GET', path: `${session}/status`, scope: 'read' },
  settled: { method: 'GET', path: `${session}/settled`, scope: 'read' },
  closeSession: { method: 'POST', path: `${session}/close`, scope: 'append' },
  pause: { method: 'POST', path: `${session}/pause`, scope: 'policy' },
  resume: { method: 'POST', path: `${session}/resume`, scope: 'policy' },
  compact: { method: 'POST', path: `${session}/compact`, scope: 'append' },
  resummarize: { method: 'POST', path: `${session}/resummarize`, scope: 'append' },

  tenantPolicy: { method: 'GET', path: '/v1/policy', scope: 'read' },
  configureTenant: { method: 'PUT', path: '/v1/policy', scope: 'policy' },
  policy: { method: 'GET', path: `${session}/policy`, scope: 'read' },
  configure: { method: 'PUT', path: `${session}/policy`, scope: 'policy' },
  pins: { method: 'GET', path: `${session}/pins`, scope: 'read' },
  pin: { method: 'PUT', path: `${session}/pins`, scope: 'policy' },

  compactions: { method: 'GET', path: `${session}/compactions`, scope: 'read', answer: 'compactions' },
  timeline: { method: 'GET', path: `${session}/timeline`, scope: 'read' },
  archiveParts: { method: 'GET', path: `${session}/archive`, scope: 'read', answer: 'parts' },
  archivePart: { method: 'GET', path: `${session}/archive/{part}`, scope: 'read', answer: 'messages' },
  replay: { method: 'GET', path: `${session}/replay`, scope: 'read' },
  export: { method: 'GET', path: `${session}/export`, scope: 'read' },
  expand: { method: 'GET', path: `${session}/messages`, scope: 'read' },
  search: { method: 'POST', path: `${session}/search`, scope: 'read', repeatable: true },
  toolResponse: { method: 'GET', path: `${session}/tool-response`, scope: 'read' },
  historyLog: { method: 'GET', path: `${session}/history`, scope: 'read' },
  restore: { method: 'POST', path: `${session}/restore`, scope: 'policy' },
  fork: { method: 'POST', path: `${session}/fork`, scope: 'append' },

  startBackfill: { method: 'POST', path: '/v1/backfills', scope: 'backfill' },
  backfills: { method: 'GET', path: '/v1/backfills', scope: 'backfill', answer: 'backfills' },
  estimateBackfill: { method: 'POST', path: '/v1/backfills/estimate', scope: 'backfill', repeatable: true },
  backfill: { method: 'GET', path: job, scope: 'backfill' },
  backfillItems: { method: 'GET', path: `${job}/items`, scope: 'backfill' },
  pauseBackfill: { method: 'POST', path: `${job}/pause`, scope: 'backfill' },
  resumeBackfill: { method: 'POST', path: `${job}/resume`, scope: 'backfill' },
  cancelBackfill: { method: 'POST', path: `${job}/cancel`, scope: 'backfill' },
  resizeBackfill: { method: 'POST', path: `${job}/resize`, scope: 'backfill' },
  retryBackfill: { method: 'POST', path: `${job}/retry`, scope: 'backfill' },

  createToken: { method: 'POST', path: '/v1/tokens', scope: 'admin' },
  tokens: { method: 'GET', path: '/v1/tokens', scope: 'admin', answer: 'tokens' },
  revokeToken: { method: 'DELETE', path: '/v1/tokens/{id}', scope: 'admin' },
} as const satisfies Record<string, Route>;

export type OperationId = keyof typeof routes;

/** The route of an operation, with the general type. */
export function routeOf(id: OperationId): Route {
  return routes[id];
}

/** Longest time, in milliseconds, that a context read waits for a compaction. */
export const longestWaitMs = 300_000;
