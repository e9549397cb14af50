import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { isRunning, self, type ProcessId } from './process.js';

let tickets = 0;

/**
 * Creates a ticket: an empty file whose name identifies the process that created it. Tickets of dead processes are recognised
 * and removed. A name is never reused by another process, so the removal of a dead process's ticket never removes that of a
 * live process.
 */
export function putTicket(folder: string): string {
  mkdirSync(folder, { recursive: true });
  const { pid, started } = self();
  const name = `${pid}-${started}-${++tickets}`;
  writeFileSync(path.join(folder, name), '');
  return name;
}

export function removeTicket(folder: string, name: string): void {
  rmSync(path.join(folder, name), { force: true });
}

/** Names of the tickets of live processes. */
export function liveTickets(folder: string): string[] {
  return readdirSync(folder).filter((name) => {
    const owner = ownerOf(name);
    if (owner && isRunning(owner)) return true;
    removeTicket(folder, name);
    return false;
  });
}

/** Returns the process that a ticket names, or null if the name is not a ticket. */
export function ownerOf(ticket: string): ProcessId | null {
  const [, pid, started] = /^(\d+)-(.+)-\d+$/.exec(ticket) ?? [];
  return pid && started ? { pid: Number(pid), started } : null;
}

/**
 * Runs `work` while no other process (and no other caller in this one) holds the lock of this folder. Every caller creates a
 * ticket before it looks at the others', so two callers can never both find themselves alone. A caller that is not alone
 * withdraws and tries again. `onWait` is called once, with the pid of the holder, if the lock is still held at the 20th attempt
 * (after about 0.6 s).
 */
export async function withLock<T>(
  folder: string,
  work: () => Promise<T>,
  onWait: (holder: number) => void = () => {},
): Promise<T> {
  let waited = 0;
  for (;;) {
    const ticket = putTicket(folder);
    try {
      const other = liveTickets(folder).find((name) => name !== ticket);
      if (other === undefined) return await work();
      if (++waited === 20) onWait(ownerOf(other)?.pid ?? 0);
    } finally {
      removeTicket(folder, ticket);
    }
    await new Promise((resolve) => setTimeout(resolve, 10 + Math.random() * 40));
  }
}
