import { sleep } from '@temporalio/workflow';

export interface Timer {
  fired: boolean;
}

/**
 * Starts one timer that several waits share, instead of one timer per wait. It ends without firing when the cancellation scope
 * in which it was started is cancelled.
 */
export function startTimer(ms: number, summary: string, then: () => void = () => undefined): Timer {
  const timer: Timer = { fired: false };
  const fire = () => {
    timer.fired = true;
    then();
  };
  sleep(Math.max(1, ms), { summary }).then(fire, () => undefined);
  return timer;
}
