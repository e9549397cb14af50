/** `palimpsest/ai-sdk` for TypeScript that resolves as Node 16 did: there a CommonJS module may not import the types of an ES module. */
import type * as adapter from './ai-sdk.js' with { 'resolution-mode': 'import' };

export type * from './ai-sdk.js' with { 'resolution-mode': 'import' };

export declare const palimpsest: typeof adapter.palimpsest;
