/** The order in which tenants get threads. */

interface Task {
  /** '' for work that no tenant asked for. */
  tenant: string;
  /** Whether it may take seconds. */
  long: boolean;
}

/**
 * Waiting work. Tenants take turns, each in the order of its own work. Long work never takes the last thread, and a tenant has at
 * most one long task running while other tenants wait.
 */
export class TaskQueue<Waiting extends Task> {
  /** By tenant, in the order in which they get the next threads. */
  readonly #queues = new Map<string, Waiting[]>();

  /** `mostLong`: maximum number of long tasks that run. */
  constructor(private readonly mostLong: number) {}

  push(task: Waiting): void {
    const own = this.#queues.get(task.tenant);
    if (own) own.push(task);
    else this.#queues.set(task.tenant, [task]);
  }

  /** Whether one of the waiting tasks may start now. */
  has(running: readonly Task[]): boolean {
    return this.#found(running) !== null;
  }

  /** Removes the task that may start now; undefined for none. */
  take(running: readonly Task[]): Waiting | undefined {
    const found = this.#found(running);
    if (found === null) return undefined;
    const { tenant, queue, at } = found;
    const [task] = queue.splice(at, 1);
    // From now on, the other tenants come before this one.
    this.#queues.delete(tenant);
    if (queue.length > 0) this.#queues.set(tenant, queue);
    return task;
  }

  #found(running: readonly Task[]): { tenant: string; queue: Waiting[]; at: number } | null {
    const long = running.filter((task) => task.long);
    for (const [tenant, queue] of this.#queues) {
      const hasShare = this.#queues.size > 1 && long.some((task) => task.tenant === tenant);
      const mayBeLong = long.length < this.mostLong && !hasShare;
      const at = queue.findIndex((task) => mayBeLong || !task.long);
      if (at >= 0) return { tenant, queue, at };
    }
    return null;
  }
}
