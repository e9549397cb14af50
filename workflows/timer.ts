import { sleep } from '@temporalio/workflow';

export interface Timer {
  fired: boolean;
}

/**
 * One timer that stays while other things come and go, instead of a timer for every wait. It ends with the
 * cancellation scope it is started in, without firing.
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
