/** `palimpsest/openai-agents` for TypeScript that resolves as Node 16 did: there a CommonJS module may not import the types of an ES module. */
import type * as agents from './openai-agents.js' with { 'resolution-mode': 'import' };

export type * from './openai-agents.js' with { 'resolution-mode': 'import' };

export declare const PalimpsestSession: typeof agents.PalimpsestSession;
export type PalimpsestSession = agents.PalimpsestSession;
