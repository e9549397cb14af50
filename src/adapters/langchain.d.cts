/**
 * `palimpsest/langchain` for CommonJS modules. LangChain declares its classes once for import and once for require, and neither is
 * assignable to the other.
 */
import type { AgentMiddleware } from 'langchain';
import type { MiddlewareOptions } from './langchain.js' with {
  'resolution-mode': 'import',
};

export type * from './langchain.js' with { 'resolution-mode': 'import' };

export declare const palimpsestMiddleware: (options: MiddlewareOptions) => AgentMiddleware;
