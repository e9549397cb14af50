export const exitCodes = { done: 0, failed: 1, usage: 2, nothing: 3, interrupted: 130 } as const;
