/** A worker in a separate process, as in production. Settings come as JSON in `WORKER`; ends with its parent. */
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type * as Product from '../src/index.js';

const checkout = process.env['WORKER_CHECKOUT'] ?? fileURLToPath(new URL('..', import.meta.url));
const { startWorker } = (await import(
  pathToFileURL(path.join(checkout, 'src/index.ts')).href
)) as typeof Product;
const settings = JSON.parse(process.env['WORKER'] ?? '{}') as Product.WorkerSettings;
const worker = await startWorker(settings);
process.once('disconnect', () => void worker.shutdown());
process.send?.('ready');
await worker.finished;
