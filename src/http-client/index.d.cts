/** `palimpsest/http` for TypeScript that resolves as Node 16 did: there a CommonJS module may not import the types of an ES module. */
import type * as http from './index.js' with { 'resolution-mode': 'import' };

export type * from './index.js' with { 'resolution-mode': 'import' };

export declare const HttpPalimpsest: typeof http.HttpPalimpsest;
export type HttpPalimpsest = http.HttpPalimpsest;
export declare const PalimpsestError: typeof http.PalimpsestError;
export type PalimpsestError = http.PalimpsestError;
export declare const failureTypes: typeof http.failureTypes;
export declare const isFailure: typeof http.isFailure;
export declare const callRecoveryTool: typeof http.callRecoveryTool;
export declare const recoveryTools: typeof http.recoveryTools;
