/** The gateway in a separate process, as in production. Settings come as JSON in `GATEWAY`; ends with its parent. */
import { startGateway } from '../src/gateway/server.js';
import type { GatewaySettings } from '../src/gateway/settings.js';
import { Palimpsest } from '../src/library/palimpsest.js';
import type { PalimpsestOptions } from '../src/library/connections.js';

const { library, gateway: settings } = JSON.parse(process.env['GATEWAY'] ?? '{}') as {
  library: PalimpsestOptions;
  gateway: GatewaySettings;
};

const palimpsest = await Palimpsest.connect(library);
const gateway = await startGateway(settings, palimpsest);
process.once('disconnect', () => void gateway.close().then(() => palimpsest.close()));
process.send?.(gateway.address);
