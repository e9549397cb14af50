/** `palimpsest/mastra` for TypeScript that resolves as Node 16 did: there a CommonJS module may not import the types of an ES module. */
import type * as mastra from './mastra.js' with { 'resolution-mode': 'import' };

export type * from './mastra.js' with { 'resolution-mode': 'import' };

export declare const PalimpsestProcessor: typeof mastra.PalimpsestProcessor;
export type PalimpsestProcessor = mastra.PalimpsestProcessor;
export declare const palimpsestMemory: typeof mastra.palimpsestMemory;
