/** Events of workflow histories, and the actions for which Temporal Cloud charges, as far as a history shows them. */
import type { temporal } from '@temporalio/proto';

export interface Actions {
  events: number;
  actions: number;
}

type HistoryEvent = temporal.api.history.v1.IHistoryEvent;

/**
 * Starts (also of children and of further runs), signals, updates, timers, search attributes, each attempt of an activity, and
 * markers of local activities. Heartbeats and queries leave no event.
 */
export function actionsIn(events: readonly HistoryEvent[]): Actions {
  return { events: events.length, actions: events.reduce((sum, event) => sum + actionsOf(event), 0) };
}

function actionsOf(event: HistoryEvent): number {
  if (event.activityTaskStartedEventAttributes) return event.activityTaskStartedEventAttributes.attempt ?? 1;
  const { markerRecordedEventAttributes: marker } = event;
  if (marker) return marker.markerName === 'core_local_activity' ? 1 : 0;
  const counted =
    event.workflowExecutionStartedEventAttributes ??
    event.workflowExecutionSignaledEventAttributes ??
    event.workflowExecutionUpdateAcceptedEventAttributes ??
    event.timerStartedEventAttributes ??
    event.upsertWorkflowSearchAttributesEventAttributes;
  return counted ? 1 : 0;
}
