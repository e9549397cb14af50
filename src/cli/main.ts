#!/usr/bin/env node
import { keepCompiledCode } from './compile-cache.js';

keepCompiledCode();

// `palimpsest --help | head -1`: a reader that closes the pipe is not a failure of this process.
for (const stream of [process.stdout, process.stderr])
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
  });

// A static import would be compiled before the cache is in use.
const { runCommandLine } = await import('./program.js');
const code = await runCommandLine();

// Output that a slow reader has not received yet would be lost.
for (const stream of [process.stdout, process.stderr])
  if (stream.writable) await new Promise<void>((resolve) => stream.write('', () => resolve()));

process.exit(code);
