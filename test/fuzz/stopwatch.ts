/** Measures work. On a machine with other work a process also waits for a processor, which is no stall of its own. */
export class Stopwatch {
  private readonly began = performance.now();
  private readonly before = process.cpuUsage();

  /** Milliseconds since its creation in which this process worked: at most the time that has passed. */
  busyMs(): number {
    const { user, system } = process.cpuUsage(this.before);
    return Math.min(performance.now() - this.began, (user + system) / 1_000);
  }
}
