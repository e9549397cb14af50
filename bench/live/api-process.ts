/** The HTTP API in a separate process. Settings come as JSON in `API`; it sends its address to its parent and ends with it. */
import { startApi } from '../../src/api/server.js';
import { Palimpsest } from '../../src/library/palimpsest.js';
import type { PalimpsestOptions } from '../../src/library/connections.js';

const palimpsest = await Palimpsest.connect(JSON.parse(process.env['API'] ?? '{}') as PalimpsestOptions);
const api = await startApi({ port: 0 }, palimpsest);
process.once('disconnect', () => void api.close().then(() => palimpsest.close()));
process.send?.(api.address);
