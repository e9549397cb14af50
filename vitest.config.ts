import { defineConfig } from 'vitest/config';

// The Temporal native core panics in worker threads (vitest#2065), hence forks.
export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    setupFiles: ['test/support/quiet.ts', 'test/support/seed.ts'],
    pool: 'forks',
    maxWorkers: 3,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // What is waited for comes; on a machine at work, not within vitest's second.
    expect: { poll: { timeout: 20_000 } },
  },
});
