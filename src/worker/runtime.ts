import { makeTelemetryFilterString, Runtime, type LogLevel } from '@temporalio/worker';
import type pino from 'pino';
import { freePort } from '../runtime/ports.js';

/** The SDK warns about queues that serve only steps and no workflows. Such queues are intended here. */
const noWarning = /^No (?:activities|workflows|Nexus services) registered/;

export interface InstalledRuntime {
  /** Returns the metrics of Temporal's SDK in Prometheus's text format, or '' if metrics are off. */
  sdkMetrics: () => Promise<string>;
}

/**
 * Installs Temporal's SDK in this process; must run once, before any other part of the SDK is used. Its log goes through
 * `logger`; the program handles signals. Only the SDK's native core can serve its metrics, so it gets its own port on loopback,
 * from which our endpoint fetches them.
 */
export async function installRuntime(logger: pino.Logger, metrics = false): Promise<InstalledRuntime> {
  const at = { TRACE: 'trace', DEBUG: 'debug', INFO: 'info', WARN: 'warn', ERROR: 'error' } as const;
  const write = (level: LogLevel, message: string, meta: object = {}): void =>
    logger[noWarning.test(message) ? 'debug' : at[level]](meta, message);
  const bindAddress = metrics ? `127.0.0.1:${await freePort()}` : null;
  Runtime.install({
    shutdownSignals: [],
    logger: {
      log: write,
      trace: (message, meta) => write('TRACE', message, meta),
      debug: (message, meta) => write('DEBUG', message, meta),
      info: (message, meta) => write('INFO', message, meta),
      warn: (message, meta) => write('WARN', message, meta),
      error: (message, meta) => write('ERROR', message, meta),
    },
    telemetryOptions: {
      logging: { forward: {}, filter: makeTelemetryFilterString({ core: 'WARN', other: 'ERROR' }) },
      ...(bindAddress === null
        ? {}
        : {
            metrics: { prometheus: { bindAddress, countersTotalSuffix: true, useSecondsForDurations: true } },
          }),
    },
  });
  return {
    async sdkMetrics() {
      if (bindAddress === null) return '';
      const answer = await fetch(`http://${bindAddress}/metrics`, { signal: AbortSignal.timeout(2_000) });
      return answer.text();
    },
  };
}
