/** MCP over streamable HTTP, for programs on this machine. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { isLocal } from '../api/access.js';
import { invalid } from '../errors.js';
import { type McpSettings, newMcpServer } from './server.js';

export interface RunningMcp {
  /** `http://127.0.0.1:PORT/mcp` */
  url: string;
  close(): Promise<void>;
}

/** Listens on 127.0.0.1. Throws `Input.Invalid` if the port is in use. */
export async function startMcpHttp(settings: McpSettings, port: number): Promise<RunningMcp> {
  const server = createServer((request, response) => {
    answer(settings, request, response).catch(() => {
      if (!response.headersSent) refuse(response, 500, 'The request ended in an unexpected error.');
      response.end();
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) =>
      reject(
        invalid(
          `cannot listen on 127.0.0.1:${port}: ${error.code ?? error.message}`,
          '--http',
          'Choose a free port, or 0.',
        ),
      ),
    );
    server.listen(port, '127.0.0.1', resolve);
  });
  const { port: bound } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${bound}/mcp`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** Every request has a server of its own: there is nothing to remember between two of them. */
async function answer(
  settings: McpSettings,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  // A page of another site, or another name of this address, is no program on this machine.
  if (!isLocal(request)) return refuse(response, 403, 'This server answers programs on this machine only.');
  if (request.url?.split('?', 1)[0] !== '/mcp') return refuse(response, 404, 'The path is /mcp.');
  if (request.method !== 'POST') {
    response.setHeader('allow', 'POST');
    return refuse(response, 405, 'This server has no streams of its own. Use POST.');
  }
  const server = newMcpServer(settings);
  const transport = new StreamableHTTPServerTransport({ enableJsonResponse: true });
  response.once('close', () => void server.close());
  await server.connect(transport);
  await transport.handleRequest(request, response);
}

function refuse(response: ServerResponse, status: number, message: string): void {
  const body = JSON.stringify({ jsonrpc: '2.0', error: { code: -32_000, message }, id: null });
  response.writeHead(status, { 'content-type': 'application/json' }).end(body);
}
