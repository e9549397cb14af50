import type { Client, WorkflowHandle } from '@temporalio/client';

export interface Counted {
  actions: number;
  events: number;
  /** Actions by kind. */
  of: Record<string, number>;
}

type History = Awaited<ReturnType<WorkflowHandle['fetchHistory']>>;
type Event = NonNullable<History['events']>[number];

/**
 * Counts every run of a workflow, and of its children, by Temporal Cloud's definition (https://docs.temporal.io/cloud/actions):
 * a start, a signal, a timer, an update and an attempt of an activity are one action each, and so is a signal-with-start, whether
 * or not it starts the workflow; a child is two; an upsert of search attributes is one, however many it writes, except the one
 * of the SDK for a version. Queries and heartbeats are actions too, but no history shows them.
 */
export async function countOf(client: Client, workflowId: string): Promise<Counted> {
  const total: Counted = { actions: 0, events: 0, of: {} };
  const roots = await runsOf(client, workflowId);
  for (const events of roots) {
    total.events += events.length;
    for (const [index, event] of events.entries()) {
      const [kind, count] = actionsOf(event, events, index);
      if (count > 0) total.of[kind] = (total.of[kind] ?? 0) + count;
      total.actions += count;
      const child = event.childWorkflowExecutionStartedEventAttributes?.workflowExecution?.workflowId;
      if (!child) continue;
      const { actions, events: more, of } = await countOf(client, child);
      total.actions += actions;
      total.events += more;
      for (const [name, one] of Object.entries(of)) total.of[name] = (total.of[name] ?? 0) + one;
    }
  }
  return total;
}

/** The histories of the chain of runs that ends with the newest one. */
async function runsOf(client: Client, workflowId: string): Promise<Event[][]> {
  const chain: Event[][] = [];
  for (let runId: string | undefined; ;) {
    const { events } = await client.workflow.getHandle(workflowId, runId).fetchHistory();
    if (!events) return chain;
    chain.unshift(events);
    const before = events[0]?.workflowExecutionStartedEventAttributes?.continuedExecutionRunId;
    if (!before) return chain;
    runId = before;
  }
}

function actionsOf(event: Event, events: readonly Event[], index: number): [kind: string, count: number] {
  const started = event.workflowExecutionStartedEventAttributes;
  if (started) {
    const counted = started.parentWorkflowExecution && !started.continuedExecutionRunId;
    return ['starts', counted || events[index + 1]?.workflowExecutionSignaledEventAttributes ? 0 : 1];
  }
  if (event.workflowExecutionSignaledEventAttributes) return ['signals', 1];
  if (event.workflowExecutionUpdateAcceptedEventAttributes) return ['updates', 1];
  if (event.timerStartedEventAttributes) return ['timers', 1];
  if (event.startChildWorkflowExecutionInitiatedEventAttributes) return ['children', 2];
  const activity = event.activityTaskStartedEventAttributes;
  if (activity) {
    const scheduled = events[Number(activity.scheduledEventId) - 1]?.activityTaskScheduledEventAttributes;
    return [scheduled?.activityType?.name ?? 'activities', activity.attempt ?? 1];
  }
  const upsert = event.upsertWorkflowSearchAttributesEventAttributes?.searchAttributes?.indexedFields;
  if (upsert)
    return ['attributes', Object.keys(upsert).some((key) => key !== 'TemporalChangeVersion') ? 1 : 0];
  return ['others', 0];
}
