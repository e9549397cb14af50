/** A thread that does one job after the other. It receives {name, given}, and answers {result} or {failure}. */
import { setPriority } from 'node:os';
import { parentPort } from 'node:worker_threads';
import { isFailure } from '../../errors.js';
import { jobs } from './jobs.js';
import type { Answer, Question } from './pool.js';

/** Gives the event loop priority. Linux has a priority for each thread, other systems only for the process. */
if (process.platform === 'linux') setPriority(10);

parentPort?.on('message', ({ name, given }: Question) => {
  const job = jobs[name] as (...parameters: readonly unknown[]) => unknown;
  parentPort?.postMessage(answerOf(() => job(...given)));
});

function answerOf(work: () => unknown): Answer {
  try {
    return { result: work() };
  } catch (error) {
    if (!isFailure(error)) return { failure: { message: String((error as Error).stack ?? error) } };
    const { type, message, path, hint, details } = error;
    return { failure: { type, message, path, hint, details } };
  }
}
