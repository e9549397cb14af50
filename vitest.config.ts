import { defineConfig } from 'vitest/config';

const { RECORD_HISTORIES } = process.env;

export default defineConfig({
  test: {
    setupFiles: ['test/support/seed.ts'],
    maxWorkers: 3,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // What is waited for comes; on a machine at work, not within vitest's second.
    expect: { poll: { timeout: 20_000 } },
    projects: [
      { extends: true, test: { name: 'core', include: ['test/core/**/*.test.ts'], pool: 'threads' } },
      {
        extends: true,
        test: {
          name: 'service',
          include: ['test/service/**/*.test.ts', ...(RECORD_HISTORIES ? ['test/recording/*.test.ts'] : [])],
          setupFiles: ['test/support/quiet.ts', 'test/support/seed.ts'],
          globalSetup: ['test/support/global-setup.ts'],
          // The Temporal native core panics in worker threads (vitest#2065).
          pool: 'forks',
        },
      },
    ],
  },
});
