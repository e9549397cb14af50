import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { isRunning, self, type ProcessId } from './process.js';

let tickets = 0;

/**
 * A ticket is an empty file in a folder; its name says which process put it there. What a dead process left is recognised
 * and removed, and because every name belongs to one process for good, a removal can never hit a live one.
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

/** The process a ticket names, or null for a name that is no ticket. */
export function ownerOf(ticket: string): ProcessId | null {
  const [, pid, started] = /^(\d+)-(.+)-\d+$/.exec(ticket) ?? [];
  return pid && started ? { pid: Number(pid), started } : null;
}

/**
 * Runs `work` while no other process (and no other caller in this one) holds the lock of this folder. Everybody puts a
 * ticket first and looks at the others' afterwards, so two can never both find themselves alone; who is not alone
 * steps back and comes again. `onWait` is called once, with the pid of the holder, when it has to wait.
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
