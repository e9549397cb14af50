/** The recovery tools as a server of the Model Context Protocol. */
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import {
  CallToolRequestSchema,
  type CallToolResult,
  ListToolsRequestSchema,
  type Tool,
} from '@modelcontextprotocol/sdk/types.js';
import type { PalimpsestClient } from '../contract/client.js';
import {
  callRecoveryTool,
  mistakeIn,
  recoveryTools,
  type RecoverySource,
} from '../contract/recovery-tools.js';
import { isFailure } from '../errors.js';
import { packageVersion } from '../runtime/home.js';

/** The methods that the server calls. */
type McpSource = RecoverySource & Pick<PalimpsestClient, 'status'>;

export interface McpSettings {
  /** Opened with the first call; one that fails is opened again with the next call. */
  source: () => Promise<McpSource>;
  /** Session that the tools read; each call names one if this is absent. */
  session?: string | undefined;
}

export function newMcpServer({ source, session }: McpSettings): Server {
  const server = new Server(
    { name: 'palimpsest', version: packageVersion() },
    {
      capabilities: { tools: {} },
      instructions:
        'Searches and reads the stored originals of a conversation, including those that a summary stands for.',
    },
  );
  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: recoveryTools.map(({ function: definition }) => toolOf(definition, session === undefined)),
  }));
  server.setRequestHandler(CallToolRequestSchema, ({ params: { name, arguments: given = {} } }) => {
    if (session !== undefined) return called(source, session, name, given);
    const { session: named, ...rest } = given;
    if (typeof named === 'string' && named !== '') return called(source, named, name, rest);
    return failed('The argument session is missing.', 'Give the id of the session as `session`.');
  });
  return server;
}

type Definition = (typeof recoveryTools)[number]['function'];

function toolOf({ name, description, parameters }: Definition, namesSession: boolean): Tool {
  const { properties, required = [] } = parameters;
  const session = { type: 'string' as const, description: 'Id of the session.' };
  const inputSchema = namesSession
    ? { ...parameters, properties: { session, ...properties }, required: ['session', ...required] }
    : parameters;
  return { name, description, inputSchema, annotations: { readOnlyHint: true, openWorldHint: false } };
}

/** Reads the session, or the fork in which it goes on. */
async function called(
  open: McpSettings['source'],
  session: string,
  name: string,
  given: Record<string, unknown>,
): Promise<CallToolResult> {
  try {
    const source = await open();
    const { continuedIn } = await source.status({ session });
    const text = await callRecoveryTool(source, continuedIn ?? session, name, given);
    const isError = 'error' in (JSON.parse(text) as object);
    return { content: [{ type: 'text', text }], isError };
  } catch (error) {
    const mistake = mistakeIn(error);
    if (mistake !== null) return failed(mistake.error, mistake.hint);
    if (!isFailure(error)) throw error;
    return failed(`${error.type}: ${error.message}`, error.hint);
  }
}

function failed(error: string, hint?: string): CallToolResult {
  return { content: [{ type: 'text', text: JSON.stringify({ error, hint }) }], isError: true };
}
