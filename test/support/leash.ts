/**
 * Once the test process has ended, even by SIGKILL, ends the processes and servers that it started: a shell waits until the
 * test process closes its end of a pipe. A Node process is started only if something is left.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import type { Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { findProcess } from '../../src/runtime/process.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const ending = fileURLToPath(new URL('./leash-end.ts', import.meta.url));

const script = `
  while read -r one; do all="$all $one"; done
  for one in $all; do
    case $one in
      /*) [ -d "$one" ] ;;
      *) kill -0 "\${one%%:*}" ;;
    esac 2> /dev/null && exec "$0" --import tsx "$1" $all
  done`;

let shell: Socket | undefined;

function tell(line: string): void {
  shell ??= startShell();
  shell.write(`${line}\n`);
}

function startShell(): Socket {
  const child = spawn('sh', ['-c', script, process.execPath, ending], {
    cwd: root,
    // Ctrl-C is meant for the tests.
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  child.unref();
  const pipe = child.stdin as Socket;
  pipe.unref();
  return pipe;
}

/** Returns the child, which is killed if it outlives this process. */
export function leashed<Child extends ChildProcess>(child: Child): Child {
  const id = child.pid === undefined ? null : findProcess(child.pid);
  if (id) tell(`${id.pid}:${id.started}`);
  return child;
}

/**
 * If this folder still exists after the end of this process, its embedded servers are stopped and the folder is removed.
 * Returns the folder.
 */
export function leashServers(dataDir: string): string {
  tell(dataDir);
  return dataDir;
}
