import { readdirSync, readFileSync } from 'node:fs';

/*
 * CPU time and memory of processes as Linux accounts for them; elsewhere nothing is known and the notes say so.
 * /proc/PID/stat counts in ticks of 10 ms on every architecture that Node supports.
 */
const ticksPerSecond = 100;

export const canAccount = process.platform === 'linux';

/** Resident memory in MB. With children, their shared memory is counted once. 0 if it is unknown. */
export function residentMemory(pid: number, withChildren = false): number {
  const pids = withChildren ? [pid, ...childrenOf(pid)] : [pid];
  return pids.reduce((sum, one) => sum + kilobytesOf(one, withChildren) / 1024, 0);
}

function kilobytesOf(pid: number, shared: boolean): number {
  const [file, pattern] = shared
    ? ['smaps_rollup', /^Pss:\s+(\d+) kB$/m]
    : ['status', /^VmRSS:\s+(\d+) kB$/m];
  try {
    return Number(pattern.exec(readFileSync(`/proc/${pid}/${file}`, 'utf8'))?.[1] ?? 0);
  } catch {
    // It has ended meanwhile.
    return 0;
  }
}

function childrenOf(pid: number): number[] {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((one) => statOf(one)?.parent === pid);
}

/** Something to account for, by a name for people. */
export interface Watched {
  name: string;
  pid: number;
  /** Its children do its work, as with PostgreSQL. @default false */
  withChildren?: boolean;
}

export interface CpuShare {
  name: string;
  /** CPU seconds per second. */
  cores: number;
}

export const otherProcesses = 'other processes';

/** Starts to account; the answer tells the mean load since then, what everybody else used on this machine last. */
export function watchCpu(watched: readonly Watched[]): () => CpuShare[] {
  if (!canAccount) return () => [];
  const start = { at: performance.now(), own: watched.map(cpuSeconds), all: busySeconds() };
  return () => {
    const seconds = (performance.now() - start.at) / 1000;
    const shares = watched.map((one, index) => ({
      name: one.name,
      cores: (cpuSeconds(one) - (start.own[index] ?? 0)) / seconds,
    }));
    const ours = shares.reduce((sum, { cores }) => sum + cores, 0);
    const others = Math.max(0, (busySeconds() - start.all) / seconds - ours);
    return [...shares, { name: otherProcesses, cores: others }];
  };
}

function cpuSeconds({ pid, withChildren = false }: Watched): number {
  if (!withChildren) return (statOf(pid)?.ticks ?? 0) / ticksPerSecond;
  // A child that ends between the two reads would count twice or not at all.
  for (;;) {
    const before = statOf(pid);
    const children = childrenOf(pid).map((child) => statOf(child)?.ticks ?? 0);
    const own = statOf(pid);
    if (own?.ofEnded !== before?.ofEnded) continue;
    return children.reduce((sum, ticks) => sum + ticks, own?.ticks ?? 0) / ticksPerSecond;
  }
}

// `pid (name) state ppid …`; fields 14 to 17 are the ticks in user and system mode, own and of children waited for.
function statOf(pid: number): { parent: number; ticks: number; ofEnded: number } | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const [user = 0, system = 0, endedUser = 0, endedSystem = 0] = fields.slice(11, 15).map(Number);
    const ofEnded = endedUser + endedSystem;
    return { parent: Number(fields[1]), ticks: user + system + ofEnded, ofEnded };
  } catch {
    return null;
  }
}

// `cpu user nice system idle iowait irq softirq steal guest …`
function busySeconds(): number {
  const [, user = 0, nice = 0, system = 0, , , irq = 0, soft = 0] = (
    readFileSync('/proc/stat', 'utf8').split('\n', 1)[0] ?? ''
  )
    .split(/\s+/)
    .map(Number);
  return (user + nice + system + irq + soft) / ticksPerSecond;
}

export function describeCpu(shares: readonly CpuShare[]): string {
  if (shares.length === 0) return 'CPU was not accounted (Linux only)';
  return shares.map(({ name, cores }) => `${name} ${cores.toFixed(2)}`).join(', ');
}
