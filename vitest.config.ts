import { configDefaults, defineConfig } from 'vitest/config';

const { RECORD_HISTORIES, TEST_SIZE } = process.env;

/** Suites of their own name (`test:faults`, `test:recorded`, `test:workers`): servers and processes that are killed or away, recorded sessions through the service, several worker processes, generated clients, agents in Python. */
const longer = [
  'test/service/**/*-{away,faults,killed,recorded,workers}.test.ts',
  'test/service/library/recorded-*.test.ts',
  'test/service/api/{generated-clients,python-examples}.test.ts',
  'test/service/adapters/mastra*.test.ts',
];

export default defineConfig({
  test: {
    setupFiles: ['test/support/seed.ts'],
    // Service tests wait more than they compute.
    maxWorkers: 5,
    // A process or thread runs many files: to load the SDKs for each of them would take longer than most tests. Files may share
    // what they load, and nothing that they change.
    isolate: false,
    // Limits end what hangs, and are no part of what is tested: a machine with other work may take its time.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    // What is looked at is a server: every 50 ms, the default, it would be at work for those that wait.
    expect: { poll: { interval: 150, timeout: 90_000 } },
    projects: [
      { extends: true, test: { name: 'core', include: ['test/core/**/*.test.ts'], pool: 'threads' } },
      {
        extends: true,
        test: {
          name: 'package',
          include: TEST_SIZE === undefined ? [] : ['test/package/*.test.ts'],
          setupFiles: ['test/support/service-process.ts', 'test/support/seed.ts'],
          globalSetup: ['test/support/global-setup.ts'],
          pool: 'forks',
        },
      },
      {
        extends: true,
        test: {
          name: 'service',
          include: ['test/service/**/*.test.ts', ...(RECORD_HISTORIES ? ['test/recording/*.test.ts'] : [])],
          exclude: [...configDefaults.exclude, ...(TEST_SIZE === undefined ? longer : [])],
          setupFiles: ['test/support/service-process.ts', 'test/support/seed.ts'],
          globalSetup: ['test/support/global-setup.ts'],
          // The Temporal native core panics in worker threads (vitest#2065).
          pool: 'forks',
        },
      },
    ],
  },
});
