/** MCP over standard input and output, for the program that started this process. */
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { type McpSettings, newMcpServer } from './server.js';

/** Serves until standard input ends or the signal is aborted. */
export async function serveMcpStdio(settings: McpSettings, signal: AbortSignal): Promise<void> {
  const server = newMcpServer(settings);
  const ended = new Promise<void>((resolve) => {
    process.stdin.once('end', resolve).once('close', resolve);
    if (signal.aborted) resolve();
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
  await server.connect(new StdioServerTransport());
  await ended;
  await server.close();
}
