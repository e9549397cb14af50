/**
 * Structured logs of worker and API: one JSON object per line, or readable lines. Only type, message and stack of an error are
 * logged, because other fields of a driver's error (`detail`, `where`) may repeat a row and its texts.
 */
import pino from 'pino';
import type { Config } from '../config/config.js';

type LogFormat = Config['logFormat'];

export interface LoggerOptions {
  level: Config['logLevel'];
  /** @default 'json' */
  format?: LogFormat;
  /** @default standard output */
  destination?: pino.DestinationStream;
}

export function createLogger({ level, format = 'json', destination }: LoggerOptions): pino.Logger {
  const out = destination ?? pino.destination({ dest: 1, sync: true });
  return pino(
    {
      level,
      serializers: { error: plainError, err: plainError },
      formatters: { level: (label) => ({ level: label }) },
      timestamp: pino.stdTimeFunctions.isoTime,
      base: null,
    },
    format === 'json' ? out : { write: (line) => out.write(readable(line)) },
  );
}

interface PlainError {
  type: string;
  message: string;
  stack?: string;
  cause?: PlainError;
}

function plainError(error: unknown): unknown {
  if (!(error instanceof Error)) return typeof error === 'string' ? error : typeof error;
  const own = 'type' in error && typeof error.type === 'string' ? error.type : error.name;
  return {
    type: own,
    message: error.message,
    stack: error.stack,
    ...(error.cause instanceof Error ? { cause: plainError(error.cause) } : {}),
  };
}

/** `12:00:00.000 INFO  compaction committed session=s-1 tokensBefore=9000` */
function readable(line: string): string {
  const { time, level, msg = '', error, err, ...rest } = JSON.parse(line) as Record<string, unknown>;
  const thrown = error ?? err;
  const failure =
    typeof thrown === 'string' ? { type: '', message: thrown } : (thrown as PlainError | undefined);
  const facts = Object.entries(rest).map(
    ([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
  );
  const stack = failure === undefined ? '' : `\n${stackOf(failure)}`;
  return `${String(time).slice(11, 23)} ${String(level).toUpperCase().padEnd(5)} ${oneLine([String(msg), ...facts].join(' '))}${stack}\n`;
}

/** Only the frames have lines of their own. */
function stackOf({ message, stack = message }: PlainError): string {
  return stack
    .split(/\n(?= +at )/)
    .map(oneLine)
    .join('\n');
}

/** Escapes what could begin a line of its own, steer a terminal or turn the direction of writing. */
function oneLine(text: string): string {
  return text.replace(
    /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
