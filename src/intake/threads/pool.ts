/**
 * A few threads for work that would block the event loop: bodies and turns with many messages or megabytes. They start on first
 * use and do not keep the process alive. One of them takes only short work, so that no short job waits long behind long ones, and
 * tenants take turns.
 */
import { availableParallelism } from 'node:os';
import { Worker, type TransferListItem } from 'node:worker_threads';
import { builtFile } from '../../runtime/home.js';
import { PalimpsestError, type FailureDetails, type FailureType } from '../../errors.js';
import type { Jobs } from './jobs.js';
import { TaskQueue } from './queue.js';

export interface Question {
  name: keyof Jobs;
  given: readonly unknown[];
}

export type Answer =
  { result: unknown } | { failure: Omit<FailureDetails, 'cause'> & { type?: FailureType; message: string } };

/** Bytes or code units above which work is long. */
const longFrom = 1024 * 1024;
const mostThreads = Math.max(2, Math.min(4, availableParallelism()));
const mostLong = mostThreads - 1;
/**
 * Heap limit of a thread. Beyond it the thread ends, and its work fails with `Input.TooLarge`. The limits on turns
 * keep it far below.
 */
const mostHeapMb = 1_024;

interface Task extends Question {
  tenant: string;
  long: boolean;
  moved: TransferListItem[];
  done(answer: Answer): void;
  broken(error: unknown): void;
}

interface Thread {
  worker: Worker;
  task: Task | null;
}

const threads = new Set<Thread>();
const waiting = new TaskQueue<Task>(mostLong);

/**
 * @param size bytes or code units of the input
 * @param moved buffers that are moved instead of copied; they are empty here afterwards
 * @param tenant the tenant whose work it is; '' for none
 */
export async function inThread<Name extends keyof Jobs>(
  name: Name,
  given: Parameters<Jobs[Name]>,
  size: number,
  { moved = [], tenant = '' }: { moved?: TransferListItem[]; tenant?: string } = {},
): Promise<ReturnType<Jobs[Name]>> {
  const answer = await new Promise<Answer>((done, broken) => {
    waiting.push({ name, given, tenant, long: size > longFrom, moved, done, broken });
    next();
  });
  if ('result' in answer) return answer.result as ReturnType<Jobs[Name]>;
  const { type, message, ...details } = answer.failure;
  throw type === undefined ? new Error(message) : new PalimpsestError(type, message, details);
}

/** Assigns waiting work to free threads. */
function next(): void {
  for (;;) {
    const running = [...threads].flatMap(({ task }) => task ?? []);
    if (!waiting.has(running)) return;
    const free = [...threads].find(({ task }) => task === null) ?? startThread();
    const task = free && waiting.take(running);
    if (!task) return;
    free.task = task;
    free.worker.ref();
    free.worker.postMessage({ name: task.name, given: task.given } satisfies Question, task.moved);
  }
}

function startThread(): Thread | null {
  if (threads.size >= mostThreads) return null;
  const thread: Thread = { worker: newWorker(), task: null };
  threads.add(thread);
  thread.worker.on('message', (answer: Answer) => {
    const { task } = thread;
    thread.task = null;
    thread.worker.unref();
    task?.done(answer);
    next();
  });
  const end = (error: unknown) => {
    if (!threads.delete(thread)) return;
    thread.task?.broken(failureOf(error));
    next();
  };
  thread.worker.once('error', end);
  thread.worker.once('exit', () => end(new Error('a thread ended unexpectedly')));
  return thread;
}

function failureOf(error: unknown): unknown {
  if ((error as NodeJS.ErrnoException).code !== 'ERR_WORKER_OUT_OF_MEMORY') return error;
  return new PalimpsestError('Input.TooLarge', `The turn needs more than ${mostHeapMb} MB of memory.`, {
    path: 'messages',
    hint: 'Send the turn in parts: a session takes any number of turns.',
  });
}

/** The compiled file of a thread runs directly. From source, the thread must load tsx first, which it does not inherit. */
function newWorker(): Worker {
  const resourceLimits = { maxOldGenerationSizeMb: mostHeapMb };
  const built = builtFile('src/intake/threads/thread.js');
  if (built !== null) return new Worker(built, { resourceLimits });
  const source = JSON.stringify(new URL('./thread.ts', import.meta.url).href);
  const loader = JSON.stringify(import.meta.resolve('tsx/esm/api'));
  const script = `import(${loader}).then(({ register }) => { register(); return import(${source}); })`;
  return new Worker(script, { eval: true, resourceLimits });
}
