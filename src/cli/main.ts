#!/usr/bin/env node
import { runCommandLine } from './program.js';

// `palimpsest --help | head -1`: a reader that closes the pipe is not a failure of this process.
for (const stream of [process.stdout, process.stderr])
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
  });

const code = await runCommandLine();

// Output that a slow reader has not received yet would be lost.
for (const stream of [process.stdout, process.stderr])
  if (stream.writable) await new Promise<void>((resolve) => stream.write('', () => resolve()));

process.exit(code);
