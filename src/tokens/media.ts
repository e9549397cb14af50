/**
 * Tokens of images, audio and files. Images count by pixels, PDFs by pages, audio by seconds and text files by bytes. If the
 * size is unknown without fetching or decoding the data, the pages of a PDF are estimated from its bytes, and a fixed cost
 * applies to the rest.
 */
import { type ContentPart, fieldsOf } from '../conversation/message.js';
import { imageSize, type ImageSize } from './image-size.js';

/**
 * An image of unknown size at high detail: 85 + 6 tiles of 170, the price of 2,048 × 4,096 pixels
 * (platform.openai.com/docs/guides/images-vision). A high estimate.
 * @internal Tests use it.
 */
export const IMAGE_TOKENS = 1_105;

/** An image with `detail: "low"` (same page). @internal Tests use it. */
export const LOW_DETAIL_IMAGE_TOKENS = 85;

/** Audio, video and files of unknown length. @internal Tests use it. */
export const OTHER_MEDIA_TOKENS = 2_000;

/**
 * A PDF page, which providers read as text and as an image: Anthropic names 1,500–3,000 tokens of text per page
 * (docs.claude.com/en/docs/build-with-claude/pdf-support); pages of text took about 2,350 tokens in a measurement.
 * @internal Tests use it.
 */
export const PDF_PAGE_TOKENS = 2_400;

/** User audio: one token per 100 ms (platform.openai.com/docs/guides/realtime-costs). */
const AUDIO_TOKENS_PER_SECOND = 10;

/** Bytes per page of a PDF with an unreadable page count: text with a few images. */
const PDF_PAGE_BYTES = 75_000;

/** Maximum number of pages that providers accept. */
const MOST_PAGES = 1_000;

/**
 * Bytes per second of audio: compressed speech at usual bit rates (128, 64, 32 kbit/s), FLAC, and PCM with 24,000 samples of 16
 * bits per second. WAV files contain their rate.
 */
const AUDIO_BYTES_PER_SECOND: Record<string, number> = {
  mp3: 16_000,
  mpeg: 16_000,
  m4a: 16_000,
  aac: 16_000,
  flac: 64_000,
  ogg: 8_000,
  opus: 4_000,
  webm: 8_000,
  pcm16: 48_000,
};

interface Payload {
  /** `image/png`, `mp3`, or '' if unknown. */
  kind: string;
  base64: string;
}

const text = (value: unknown): string => (typeof value === 'string' ? value : '');

const dataUrl = /^data:([^;,]{0,100})(?:;[^,]{0,200})?;base64,/i;

function payloadIn(data: string, kind: string): Payload | null {
  const header = dataUrl.exec(data.slice(0, 400));
  if (header !== null) return { kind: header[1] ?? '', base64: data.slice(header[0].length) };
  return data === '' || /^[a-z][a-z0-9+.-]*:/i.test(data.slice(0, 40)) ? null : { kind, base64: data };
}

/** The data of a part in the forms of OpenAI, Anthropic, Gemini, MCP and the AI SDK; null if the part only refers to it. */
function payloadOf(part: ContentPart): Payload | null {
  const inline = fieldsOf(part.inline_data ?? part.inlineData);
  const source = fieldsOf(part.source);
  const file = fieldsOf(part.file);
  const audio = fieldsOf(part.input_audio);
  const kind = text(
    part.mediaType ??
      part.mimeType ??
      part.media_type ??
      source.media_type ??
      inline.mime_type ??
      inline.mimeType ??
      audio.format ??
      file.filename,
  );
  const candidates = [
    fieldsOf(part.image_url).url,
    part.image_url,
    part.image,
    source.data,
    inline.data,
    audio.data,
    file.file_data,
    part.file_data,
    part.data,
  ];
  const data = candidates.map(text).find((value) => value !== '');
  return data === undefined ? null : payloadIn(data, kind);
}

/** platform.openai.com/docs/guides/images-vision: fit 2,048², then the shorter side to 768, then tiles of 512². */
function tileTokens({ width, height }: ImageSize): number {
  const fitted = Math.min(1, 2_048 / Math.max(width, height));
  const scale = fitted * Math.min(1, 768 / (Math.min(width, height) * fitted));
  const tilesAlong = (side: number): number => Math.ceil(Math.round(side * scale) / 512);
  return 85 + 170 * tilesAlong(width) * tilesAlong(height);
}

/**
 * docs.claude.com/en/docs/build-with-claude/vision: width · height / 750 after the longer side was reduced to 1,568 pixels, at
 * most about 1,600 tokens. (Newer models read large images at a higher resolution; reported usage corrects the count.)
 */
function areaTokens({ width, height }: ImageSize): number {
  const scale = Math.min(1, 1_568 / Math.max(width, height));
  return Math.min(1_600, Math.ceil((width * scale * height * scale) / 750));
}

function imageTokens(part: ContentPart): number {
  const detail = fieldsOf(part.image_url).detail ?? part.detail;
  if (detail === 'low') return LOW_DETAIL_IMAGE_TOKENS;
  const payload = payloadOf(part);
  const size = payload && imageSize(payload.base64);
  if (!size) return IMAGE_TOKENS;
  return part.source === undefined ? tileTokens(size) : areaTokens(size);
}

function bytesOf({ base64 }: Payload): number {
  const padding = base64.endsWith('==') ? 2 : base64.endsWith('=') ? 1 : 0;
  return Math.floor(((base64.length - padding) * 3) / 4);
}

const decoded = (base64: string): string => Buffer.from(base64, 'base64').toString('latin1');

/** Reads the page count from the page tree, which is near the end of a PDF, or near the start of a linearized PDF. */
function pdfPages(payload: Payload): number {
  const { base64 } = payload;
  const window = 88_000; // characters, a multiple of 4
  const end = Math.max(0, base64.length - window);
  const seen = decoded(base64.slice(0, window)) + decoded(base64.slice(end - (end % 4)));
  const counts = [...seen.matchAll(/\/(?:Count|N)\s+(\d{1,6})/g)].map(([, pages]) => Number(pages));
  const told = Math.max(0, ...counts.filter((pages) => pages <= MOST_PAGES));
  return told > 0 ? told : Math.min(MOST_PAGES, Math.ceil(bytesOf(payload) / PDF_PAGE_BYTES));
}

function audioSeconds(payload: Payload): number | null {
  const header = Buffer.from(payload.base64.slice(0, 64), 'base64');
  if (header.length >= 32 && header.toString('latin1', 0, 4) === 'RIFF') {
    const bytesPerSecond = header.readUInt32LE(28);
    if (bytesPerSecond > 0) return bytesOf(payload) / bytesPerSecond;
  }
  const format = /(?:^|[/.-])(mp3|mpeg|m4a|aac|flac|ogg|opus|webm|pcm16)\b/i.exec(payload.kind)?.[1];
  const bytesPerSecond = AUDIO_BYTES_PER_SECOND[format?.toLowerCase() ?? ''];
  return bytesPerSecond === undefined ? null : bytesOf(payload) / bytesPerSecond;
}

function payloadTokens(payload: Payload): number {
  const { kind, base64 } = payload;
  if (/audio|^wav$/i.test(kind) || Object.hasOwn(AUDIO_BYTES_PER_SECOND, kind)) {
    const seconds = audioSeconds(payload);
    return seconds === null ? OTHER_MEDIA_TOKENS : Math.max(1, Math.ceil(seconds * AUDIO_TOKENS_PER_SECOND));
  }
  if (base64.startsWith('JVBERi')) return pdfPages(payload) * PDF_PAGE_TOKENS; // `%PDF-`
  // A text file counts as text: four bytes per token, without decoding.
  if (/^text\/|json|xml|csv|\.(?:txt|md)$/i.test(kind)) return Math.ceil(bytesOf(payload) / 4);
  return OTHER_MEDIA_TOKENS;
}

/** Tokens of a media part. Reads at most about 130 KB of its data. */
export function mediaTokens(part: ContentPart): number {
  if (/image/i.test(part.type)) return imageTokens(part);
  const payload = payloadOf(part);
  return payload === null ? OTHER_MEDIA_TOKENS : payloadTokens(payload);
}

/** Whether a value of unknown meaning looks like data: a data URL, or base64 without spaces. */
export function looksEncoded(value: string): boolean {
  return value.length > 256 && (dataUrl.test(value.slice(0, 400)) || /^[\w+/=-]+$/.test(value));
}

/** Tokens of data of unknown meaning: by its kind if known, else the fixed cost; at most its tokens as text. */
export function encodedTokens(value: string): number {
  const atMost = Math.ceil(value.length / 4);
  const payload = dataUrl.test(value.slice(0, 400)) ? payloadIn(value, '') : null;
  if (payload === null) return Math.min(OTHER_MEDIA_TOKENS, atMost);
  if (!/^image\//i.test(payload.kind)) return Math.min(payloadTokens(payload), atMost);
  const size = imageSize(payload.base64);
  return Math.min(size === null ? IMAGE_TOKENS : tileTokens(size), atMost);
}
