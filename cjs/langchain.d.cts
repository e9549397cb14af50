/** `palimpsest/langchain` for TypeScript that resolves as Node 16 did: there a CommonJS module may not import the types of an ES module. */
import type * as adapter from '../dist/src/adapters/langchain.js' with { 'resolution-mode': 'import' };

export type * from '../dist/src/adapters/langchain.js' with { 'resolution-mode': 'import' };

export declare const palimpsestMiddleware: typeof adapter.palimpsestMiddleware;
