/**
 * Workflow code must stay deterministic for running workflows: every recorded history is replayed with the current code.
 * Recordings are never deleted. After a change that adds paths, `RECORD_HISTORIES=<label> npx vitest run test/recording` makes
 * a further one, `test/histories/<label>`.
 */
import { readdir, readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { historyFromJSON } from '@temporalio/common/lib/proto-utils.js';
import { Worker } from '@temporalio/worker';
import { expect, inject, test } from 'vitest';

const folder = fileURLToPath(new URL('../../histories/', import.meta.url));
const bundle = () => ({ codePath: inject('workflowBundlePath') });

interface Recorded {
  events: {
    workflowExecutionStartedEventAttributes?: { workflowId: string };
    activityTaskScheduledEventAttributes?: { activityType: { name: string } };
  }[];
}

const idOf = ({ events }: Recorded) => events[0]?.workflowExecutionStartedEventAttributes?.workflowId;

const read = async (name: string) => JSON.parse(await readFile(folder + name, 'utf8')) as Recorded;

const recordings = (await readdir(folder)).toSorted();
const namesOf = async (label: string) =>
  (await readdir(folder + label)).filter((name) => name.endsWith('.json')).map((name) => `${label}/${name}`);

test('no recording is lost', async () => {
  const counts = await Promise.all(
    recordings.map(async (label) => [label, (await namesOf(label)).length] as const),
  );
  expect(Object.fromEntries(counts)).toMatchObject({ 'main-paths': 18, 'every-path': 57 });
});

test.for(recordings)('histories of %s replay with the current code', async (label) => {
  const names = await namesOf(label);
  const histories = names.map(async (name) => {
    const recorded = await read(name);
    return { workflowId: idOf(recorded) ?? name, history: historyFromJSON(recorded) };
  });
  const failures: string[] = [];
  let replayed = 0;
  const results = Worker.runReplayHistories({ workflowBundle: bundle() }, await Promise.all(histories));
  for await (const { workflowId, error } of results) {
    replayed++;
    if (error) failures.push(`${workflowId}: ${error.message}`);
  }
  expect(failures).toEqual([]);
  expect(replayed).toBe(names.length);
});

test('a history that differs from the code is detected', async () => {
  const recorded = await read('main-paths/session-triggered.json');
  const scheduled = recorded.events.find((event) => event.activityTaskScheduledEventAttributes);
  scheduled!.activityTaskScheduledEventAttributes!.activityType.name = 'somethingElse';
  await expect(
    Worker.runReplayHistory({ workflowBundle: bundle() }, historyFromJSON(recorded), idOf(recorded)),
  ).rejects.toThrow(/[Dd]etermin/);
});
