/** A worker in a separate process, as in production. Settings come as JSON in `WORKER`; ends with its parent. */
import { startWorker, type WorkerSettings } from '../src/worker/worker.js';

const settings = JSON.parse(process.env['WORKER'] ?? '{}') as WorkerSettings;
const worker = await startWorker(settings);
process.once('disconnect', () => void worker.shutdown());
process.send?.('ready');
await worker.finished;
