/** `palimpsest` for TypeScript that resolves as Node 16 did: there a CommonJS module may not import the types of an ES module. */
import type * as library from './index.js' with { 'resolution-mode': 'import' };

export type * from './index.js' with { 'resolution-mode': 'import' };

export declare const Palimpsest: typeof library.Palimpsest;
export type Palimpsest = library.Palimpsest;
export declare const PalimpsestError: typeof library.PalimpsestError;
export type PalimpsestError = library.PalimpsestError;
export declare const Conversation: typeof library.Conversation;
export type Conversation = library.Conversation;
export declare const applyCompaction: typeof library.applyCompaction;
export declare const callRecoveryTool: typeof library.callRecoveryTool;
export declare const describePolicy: typeof library.describePolicy;
export declare const effectivePolicy: typeof library.effectivePolicy;
export declare const failureTypes: typeof library.failureTypes;
export declare const isFailure: typeof library.isFailure;
export declare const limitsOf: typeof library.limitsOf;
export declare const migrate: typeof library.migrate;
export declare const parsePolicy: typeof library.parsePolicy;
export declare const payloadCodec: typeof library.payloadCodec;
export declare const planCompaction: typeof library.planCompaction;
export declare const presetNames: typeof library.presetNames;
export declare const presets: typeof library.presets;
export declare const readDeploymentPolicy: typeof library.readDeploymentPolicy;
export declare const recoveryTools: typeof library.recoveryTools;
export declare const registerCounter: typeof library.registerCounter;
export declare const resolvePolicy: typeof library.resolvePolicy;
export declare const startWorker: typeof library.startWorker;
