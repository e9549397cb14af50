/** All tests of the client once more, over the global `fetch` in place of Node's own HTTP. */
import { vi } from 'vitest';
import './http-client.test.js';

vi.mock('../../../src/http-client/node-fetch.js', () => ({ nodeFetch: globalThis.fetch }));
