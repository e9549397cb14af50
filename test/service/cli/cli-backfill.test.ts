/** A backfill from the command line: estimate, start, status while it runs, control, retry, and report. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Backfill, BackfillEstimate, BackfillItem } from '../../../src/contract/backfills.js';
import { cliOf, linesOf } from '../../support/cli.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let cli: ReturnType<typeof cliOf>;

beforeAll(async () => {
  stack = await startStack();
  cli = cliOf(stack);
  // They grow while nothing is compacted, as imported ones do.
  for (const name of ['old-1', 'old-2', 'old-3', 'other'])
    // Digests are kept by content: a session of other texts asks the model again.
    for (const [index, messages] of dialogue(12, name === 'other' ? 120 : 100).entries())
      await stack.palimpsest.appendTurn({
        session: name,
        turnId: `t-${index}`,
        messages,
        ...(index === 0 ? { policy: { ...smallPolicy, trigger: { messages: 1_000 } } } : {}),
      });
});

afterAll(() => stack?.stop());

test('estimate and --dry-run show the effect and change nothing', async () => {
  const { stdout } = await cli.run(['backfill', 'estimate', '--prefix', 'old-', '--mode', 'all']);
  expect(stdout).toMatch(/^sessions +3 of 3 that match would be compacted$/m);
  expect(stdout).toMatch(/^tokens +[\d,]+ → [\d,]+, \d+ % less$/m);
  const dry = await cli.json<BackfillEstimate>([
    'backfill',
    'start',
    'job',
    '--prefix',
    'old-',
    '--mode',
    'all',
    '--dry-run',
  ]);
  expect(dry).toMatchObject({ selected: 3, due: 3 });
  expect(await cli.run(['backfill', 'list'])).toMatchObject({ code: 0, stderr: 'No backfill.\n' });
});

test('start --watch ends with the job’s page; list, status and items', async () => {
  const args = ['backfill', 'start', 'job', '--prefix', 'old-', '--mode', 'all', '--concurrency', '2'];
  const watched = await cli.spawn([...args, '--watch']);
  expect(watched.stdout).toMatch(/^job +job$/m);
  expect(watched.stdout).toMatch(/^state +completed$/m);
  expect(watched.stdout).toMatch(/^sessions +3 of 3 \(100 %\), [\d.]+\/s$/m);
  expect(watched.stdout).toMatch(/^ +3 compacted$/m);
  expect(watched.code).toBe(0);

  // The same request under the same name is the same job.
  expect(await cli.json<Backfill>(args)).toMatchObject({ job: 'job', state: 'completed' });
  const [listed] = linesOf<Backfill>((await cli.run(['backfill', 'list', '--json'])).stdout);
  expect(listed).toMatchObject({ job: 'job', counts: { compacted: 3, failed: 0 } });
  const table = await cli.run(['backfill', 'list']);
  expect(table.stdout).toMatch(/^job +state +sessions +done +failed +per s +saved +cost +started$/m);
  expect(await cli.json<Backfill>(['backfill', 'status', 'job'])).toMatchObject({ state: 'completed' });

  const items = await cli.spawn(['backfill', 'items', 'job', '--limit', '2', '--json']);
  expect(linesOf<BackfillItem>(items.stdout).map(({ session, state }) => [session, state])).toEqual([
    ['old-1', 'compacted'],
    ['old-2', 'compacted'],
  ]);
  expect(items.stderr).toBe('more follow: --after "old-2", or --all\n');
  const failed = await cli.run(['backfill', 'items', 'job', '--state', 'failed']);
  expect(failed).toMatchObject({ code: 0, stderr: 'No session is failed.\n' });
});

test('pause, resize, resume, cancel, retry', async () => {
  stack.model.hold();
  const asked = stack.model.requests.length;
  const start = ['backfill', 'start', 'steered', '--prefix', 'other', '--mode', 'all'];
  expect(await cli.json<Backfill>(start)).toMatchObject({ state: 'running' });
  await stack.model.waitForRequests(asked + 1);
  expect((await cli.spawn(['backfill', 'pause', 'steered'])).stdout).toMatch(/^state +paused$/m);
  expect(await cli.json<Backfill>(['backfill', 'resize', 'steered', '3'])).toMatchObject({ concurrency: 3 });
  expect(await cli.json<Backfill>(['backfill', 'resume', 'steered'])).toMatchObject({ state: 'running' });

  const watching = cli.start(['backfill', 'status', 'steered', '--watch']);
  await watching.shows(/of 1 sessions/);
  watching.child.kill('SIGINT');
  expect(await watching.ended).toMatchObject({ code: 130, stdout: '' });

  await cli.run(['backfill', 'cancel', 'steered']);
  stack.model.release();
  await expect
    .poll(async () => (await stack.palimpsest.backfill({ job: 'steered' })).state)
    .toBe('cancelled');
  const again = await cli.run(['backfill', 'retry', 'steered', '--watch']);
  expect(again.stdout).toMatch(/^state +completed$/m);
});

test.each([
  [['status', 'nobody'], 1, 'Store.BackfillNotFound'],
  [['pause', 'nobody'], 1, 'Store.BackfillNotFound'],
  [['resize', 'job', '501'], 2, 'Input.Invalid'],
  [['start', 'x', '--idle-since', 'yesterday'], 2, 'Input.Invalid'],
  [['start', 'x', '--mode', 'most'], 2, 'Input.Invalid'],
  [['start', 'x', '--spend-limit', '-1'], 2, 'Input.Invalid'],
  [['start', 'job', '--prefix', 'another'], 2, 'Input.Invalid'],
  [['items', 'job', '--state', 'lost'], 2, 'Input.Invalid'],
])('backfill %j: exit %i, %s', async (args, code, type) => {
  const ended = await cli.run(['backfill', ...args, '--json']);
  expect(linesOf(ended.stdout)).toMatchObject([{ error: { type } }]);
  expect(ended.code).toBe(code);
});
