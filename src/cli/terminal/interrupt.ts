/** One press of Ctrl-C reaches this process several times: from the terminal, and again through npm and tsx. */
const samePressMs = 1_000;

export class Interrupted extends Error {
  constructor() {
    super('interrupted');
  }
}

/** Whoever read our output had enough. */
export class ReaderGone extends Interrupted {}

/**
 * Aborted by the first Ctrl-C (or SIGTERM, or a reader of our output that went away), with an error where the output
 * cannot be written. A later press ends the process at once; what was in flight goes on at the next start.
 */
export function onInterrupt(): AbortController {
  const controller = new AbortController();
  let first = 0;
  const interrupt = (reason = new Interrupted()): void => {
    if (controller.signal.aborted) {
      if (Date.now() - first > samePressMs) process.exit(130);
      return;
    }
    first = Date.now();
    controller.abort(reason);
  };
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => interrupt());
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EPIPE') interrupt(new ReaderGone());
      else controller.abort(new Error(`the output cannot be written: ${error.message}`));
    });
  }
  return controller;
}
