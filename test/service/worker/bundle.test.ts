/** Workflow code runs in a small sandbox, cached once for each session: a heavy import would cost every worker memory. */
import { readFile } from 'node:fs/promises';
import { expect, inject, test } from 'vitest';

test("the workflow bundle has only the Temporal SDK, its small dependencies and this project's code", async () => {
  const code = await readFile(inject('workflowBundlePath'), 'utf8');
  const modules = [...code.matchAll(/^\/\*{3}\/ "([^"]+)"/gm)].map(([, name]) => name ?? '');
  const packages = new Set(
    modules.flatMap((name) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(name)?.[1] ?? []),
  );
  expect([...packages].sort()).toEqual([
    '@temporalio/common',
    '@temporalio/workflow',
    'long',
    'ms',
    'nexus-rpc',
  ]);
  const own = modules
    .filter((name) => /^\.\/(?!node_modules)/.test(name))
    .map((name) => name.replace(/^\.\//, ''));
  expect(own.filter((name) => name.startsWith('src/')).sort()).toEqual([
    'src/compaction/summarize/consolidate.ts',
    'src/compaction/summarize/digests.ts',
    'src/compaction/summarize/last-answer.ts',
    'src/compaction/summarize/model-steps.ts',
    'src/compaction/summarize/summarize.ts',
    'src/contract/ids.ts',
    'src/errors.ts',
    'src/numbers.ts',
    'src/summary/ask/layers.ts',
    'src/summary/journal/room.ts',
    'src/temporal/failures.ts',
    'src/temporal/names.ts',
  ]);
});
