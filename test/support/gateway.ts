import { createHash } from 'node:crypto';
import { type RunningGateway, startGateway } from '../../src/gateway/server.js';
import type { GatewaySettings } from '../../src/gateway/settings.js';
import type { Stack } from './stack.js';

export const key = 'key-of-palimpsest';

/** A gateway for a stack, whose tenant has the key. */
export async function gatewayOf(stack: Stack, settings: GatewaySettings): Promise<RunningGateway> {
  const sha256 = createHash('sha256').update(key).digest('hex');
  const tokens = [{ tenant: stack.queuePrefix, sha256 }];
  return startGateway({ port: 0, tokens, ...settings }, stack.palimpsest);
}
