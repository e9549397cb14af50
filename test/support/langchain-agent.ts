/** The scripted agent (`shipment-agent.ts`) in LangChain. */
import type { CallbackManagerForLLMRun } from '@langchain/core/callbacks/manager';
import {
  BaseChatModel,
  type BaseChatModelCallOptions,
  type BindToolsInput,
} from '@langchain/core/language_models/chat_models';
import {
  AIMessage,
  AIMessageChunk,
  type BaseMessage,
  mapChatMessagesToStoredMessages,
  SystemMessage,
  ToolMessage,
} from '@langchain/core/messages';
import { ChatGenerationChunk, type ChatResult } from '@langchain/core/outputs';
import { convertToOpenAITool } from '@langchain/core/utils/function_calling';
import { tool } from 'langchain';
import type { Json } from '../../src/conversation/message.js';
import { recordOf, type Seen, type ShipmentModel, toolNames } from './shipment-agent.js';

interface CallOptions extends BaseChatModelCallOptions {
  tools?: BindToolsInput[];
}

/** The scripted model behind LangChain's interface, whole and in chunks. */
export class ScriptedChat extends BaseChatModel<CallOptions> {
  constructor(private readonly script: ShipmentModel) {
    super({});
  }

  _llmType(): string {
    return 'scripted';
  }

  override bindTools(tools: BindToolsInput[]) {
    return this.withConfig({ tools });
  }

  async _generate(messages: BaseMessage[], { tools = [] }: this['ParsedCallOptions']): Promise<ChatResult> {
    const { text, calls, usage } = this.script.answer(messages.map(seen), tools.map(convertToOpenAITool));
    const message = new AIMessage({
      content: text,
      tool_calls: calls.map(({ id, name, input }) => ({ id, name, args: input, type: 'tool_call' })),
      usage_metadata: {
        ...{ input_tokens: usage.input, output_tokens: usage.output },
        total_tokens: usage.input + usage.output,
      },
      response_metadata: { model_name: 'scripted-2026-01-01' },
    });
    return { generations: [{ text, message }] };
  }

  override async *_streamResponseChunks(
    messages: BaseMessage[],
    options: this['ParsedCallOptions'],
    run?: CallbackManagerForLLMRun,
  ): AsyncGenerator<ChatGenerationChunk> {
    const { generations } = await this._generate(messages, options);
    const {
      content,
      tool_calls = [],
      usage_metadata,
      response_metadata,
    } = generations[0]!.message as AIMessage;
    const chunks = [
      new AIMessageChunk({ content: '', response_metadata }),
      ...(content as string).split(/(?<= )/).map((text) => new AIMessageChunk({ content: text })),
      ...tool_calls.map(
        ({ id, name, args }, index) =>
          new AIMessageChunk({
            content: '',
            tool_call_chunks: [{ id, name, args: JSON.stringify(args), index, type: 'tool_call_chunk' }],
          }),
      ),
      new AIMessageChunk({ content: '', usage_metadata }),
    ];
    for (const message of chunks) {
      const chunk = new ChatGenerationChunk({ message, text: message.text });
      yield chunk;
      await run?.handleLLMNewToken(chunk.text, undefined, undefined, undefined, undefined, { chunk });
    }
  }
}

export function seen(message: BaseMessage): Seen {
  const text = message.text;
  if (AIMessage.isInstance(message) || AIMessageChunk.isInstance(message))
    return {
      role: 'assistant',
      text,
      calls: (message.tool_calls ?? []).map(({ name, args }) => ({ name, input: args })),
    };
  if (ToolMessage.isInstance(message)) return { role: 'tool', text };
  return { role: SystemMessage.isInstance(message) ? 'system' : 'user', text };
}

export const tools = toolNames.map((name) =>
  tool(({ shipment }: { shipment: number }) => recordOf(name, shipment), {
    name,
    description: `Reads the record of ${name}.`,
    schema: {
      type: 'object',
      properties: { shipment: { type: 'integer' } },
      required: ['shipment'],
      additionalProperties: false,
    },
  }),
);

/** Messages as they are stored. */
export const stored = (messages: BaseMessage[]): Json[] =>
  JSON.parse(JSON.stringify(mapChatMessagesToStoredMessages(messages))) as Json[];
