/** The HTTP API in a separate process, as in production. Settings come as JSON in `API`; ends with its parent. */
import { startApi } from '../src/api/server.js';
import type { ApiSettings } from '../src/api/settings.js';
import { Palimpsest } from '../src/library/palimpsest.js';
import type { PalimpsestOptions } from '../src/library/connections.js';

const { library, api: settings } = JSON.parse(process.env['API'] ?? '{}') as {
  library: PalimpsestOptions;
  api: ApiSettings;
};

const palimpsest = await Palimpsest.connect(library);
const api = await startApi(settings, palimpsest);
process.once('disconnect', () => void api.close().then(() => palimpsest.close()));
process.send?.(api.address);
