/** Chat messages as Gemini has them, for what a context does not show in its original parts. */
import type { ChatMessage, ContentPart, Json } from '../conversation/message.js';
import { argumentsOf, mediaOf, partsOf, placeholder, textPart, type Fields } from './content.js';

/** A part, and whether it was made here: then its call id is the context's, which Gemini need not see. */
export interface Piece {
  part: Fields;
  made: boolean;
}

export interface Turn {
  role: 'user' | 'model';
  pieces: Piece[];
  /** The content that came in, while nothing of it had to change. */
  original?: Fields;
}

/**
 * Gemini 3 refuses calls without a signature of its own; for those of other origin its documentation names this one
 * (ai.google.dev/gemini-api/docs/thought-signatures, "skip_thought_signature_validator").
 */
export const NO_SIGNATURE = 'skip_thought_signature_validator';

const made = (part: Fields): Piece => ({ part, made: true });

/** Reasoning is left out: only the model's own thought parts are taken back. */
export function turnOf(message: ChatMessage): Turn {
  const { role, content, name } = message;
  if (role === 'assistant') return { role: 'model', pieces: modelParts(message).map(made) };
  if (role === 'tool' || role === 'function')
    return { role: 'user', pieces: responseParts(message).map(made) };
  const label = role === 'user' ? name && `[${name}]` : '[system]';
  const parts = [...(label ? [{ text: label }] : []), ...partsOf(content).map(geminiPart)];
  return { role: 'user', pieces: parts.map(made) };
}

export function geminiPart(part: ContentPart): Fields {
  const media = mediaOf(part);
  if (media?.data && media.mediaType !== '')
    return { inlineData: { mimeType: media.mediaType, data: media.data } };
  // Other addresses are not fetched by the API.
  if (media?.url && /^gs:|generativelanguage\.googleapis\.com/.test(media.url))
    return { fileData: { fileUri: media.url } };
  if (media)
    return { text: `[${[media.kind, media.name, media.url ?? media.fileId].filter(Boolean).join(' ')}]` };
  const refusal = typeof part.refusal === 'string' ? part.refusal : undefined;
  return { text: part.text ?? refusal ?? placeholder(part.type, part as Json).text ?? '' };
}

function modelParts({
  content,
  refusal,
  tool_calls: calls = [],
  function_call: legacy,
}: ChatMessage): Fields[] {
  const said = [...partsOf(content), ...(typeof refusal === 'string' ? [textPart(refusal)] : [])]
    .filter(({ type }) => !/thinking|reasoning/.test(type))
    .map(geminiPart);
  const called = calls.map(({ id, function: fn, custom }) => {
    const { name = '', input } = (custom ?? {}) as { name?: string; input?: string };
    return fn ? callPart(id, fn.name, argumentsOf(fn.arguments)) : callPart(id, name, { input: input ?? '' });
  });
  if (legacy) called.push(callPart(`function_${legacy.name}`, legacy.name, argumentsOf(legacy.arguments)));
  return [
    ...said,
    ...called.map((part, index) => (index === 0 ? { ...part, thoughtSignature: NO_SIGNATURE } : part)),
  ];
}

const callPart = (id: string, name: string, args: Fields): Fields => ({ functionCall: { id, name, args } });

/** The name is that of the call, which the caller of this knows. Media stand beside the response. */
function responseParts({ role, tool_call_id: id = '', name = '', content }: ChatMessage): Fields[] {
  const parts = partsOf(content).map(geminiPart);
  const output = parts.flatMap(({ text }) => (typeof text === 'string' && text.trim() !== '' ? [text] : []));
  const response: Fields = output.length === 0 ? {} : { output: output.join('\n') };
  return [
    { functionResponse: { id: role === 'function' ? `function_${name}` : id, name, response } },
    ...parts.filter(({ text }) => text === undefined),
  ];
}
