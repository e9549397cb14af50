/**
 * Images, audio and files count with the tokens that providers charge: by pixels, seconds and pages read from a few bytes of
 * their data. Their base64 is never counted as text, and no data makes the count fail.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type ContentPart, isMedia } from '../../../src/conversation/message.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { imageSize } from '../../../src/tokens/image-size.js';
import {
  encodedTokens,
  IMAGE_TOKENS,
  LOW_DETAIL_IMAGE_TOKENS,
  mediaTokens,
  OTHER_MEDIA_TOKENS,
  PDF_PAGE_TOKENS,
} from '../../../src/tokens/media.js';
import { countMessage, FRAMING_TOKENS } from '../../../src/tokens/message.js';

const be16 = (value: number): number[] => [value >> 8, value & 255];
const be32 = (value: number): number[] => [...be16(value >>> 16), ...be16(value & 0xffff)];
const le16 = (value: number): number[] => be16(value).reverse();
const le24 = (value: number): number[] => [value & 255, (value >> 8) & 255, value >> 16];
const le32 = (value: number): number[] => be32(value).reverse();
const letters = (text: string): number[] => [...Buffer.from(text, 'latin1')];
const rest = letters('further bytes of the picture '.repeat(20));

const png = (width: number, height: number): number[] => [
  ...[0x89, ...letters('PNG\r\n\x1a\n'), ...be32(13), ...letters('IHDR')],
  ...[...be32(width), ...be32(height), 8, 6, 0, 0, 0, ...rest],
];

const gif = (width: number, height: number): number[] => [
  ...letters('GIF89a'),
  ...le16(width),
  ...le16(height),
  ...rest,
];

const riff = (chunk: string, ...body: number[]): number[] => [
  ...[...letters('RIFF'), ...le32(1_000), ...letters(`WEBP${chunk}`), ...le32(500), ...body, ...rest],
];

const webp = {
  lossy: (width: number, height: number) =>
    riff('VP8 ', 0x30, 1, 0, 0x9d, 1, 0x2a, ...le16(width), ...le16(height | 0x4000)),
  lossless: (width: number, height: number) =>
    riff('VP8L', 0x2f, ...le32(((width - 1) | ((height - 1) << 14)) >>> 0)),
  extended: (width: number, height: number) =>
    riff('VP8X', 0x10, 0, 0, 0, ...le24(width - 1), ...le24(height - 1)),
};

const segment = (marker: number, bytes: number[]): number[] => [
  ...[0xff, marker, ...be16(bytes.length + 2)],
  ...bytes,
];

/** A photograph: EXIF with a thumbnail that has a size of its own, a colour profile, fill bytes, then the frame. */
const jpeg = (width: number, height: number, profile = 60_000, frame = 0xc0): number[] => [
  ...[0xff, 0xd8],
  ...segment(0xe1, [...letters('Exif\0\0'), 0xff, 0xd8, 0xff, 0xc0, 0, 17, 8, ...be16(120), ...be16(160)]),
  ...segment(0xe2, Array<number>(profile).fill(7)),
  ...segment(0xe2, Array<number>(profile).fill(9)),
  ...segment(0xc4, [1, 2, 3]),
  ...[0xff, 0xff],
  ...segment(frame, [8, ...be16(height), ...be16(width), 3, 1, 0x22, 0]),
  ...rest,
];

const base64 = (bytes: readonly number[]): string => Buffer.from(bytes).toString('base64');

const imageUrl = (bytes: readonly number[], detail?: string): ContentPart => ({
  type: 'image_url',
  image_url: { url: `data:image/any;base64,${base64(bytes)}`, ...(detail ? { detail } : {}) },
});

describe('the size of an image', () => {
  const side = fc.integer({ min: 1, max: 16_383 });

  test.each([
    ['PNG', png],
    ['GIF', gif],
    ['JPEG', (width: number, height: number) => jpeg(width, height, 10)],
    ['progressive JPEG', (width: number, height: number) => jpeg(width, height, 10, 0xc2)],
    ['lossy WebP', webp.lossy],
    ['lossless WebP', webp.lossless],
    ['extended WebP', webp.extended],
  ])('is read from the header of a %s', (_, encode) => {
    fc.assert(
      fc.property(side, side, (width, height) => {
        expect(imageSize(base64(encode(width, height)))).toEqual({ width, height });
      }),
    );
  });

  test('is found behind large metadata, not in the thumbnail within it', () => {
    expect(imageSize(base64(jpeg(4_000, 3_000, 65_000)))).toEqual({ width: 4_000, height: 3_000 });
  });

  test('is read from base64 with line breaks and of the URL alphabet too', () => {
    const wrapped = base64(jpeg(4_000, 3_000, 5_000)).replace(/.{76}/g, '$&\r\n');
    expect(imageSize(wrapped)).toEqual({ width: 4_000, height: 3_000 });
    const url = base64(png(1_023, 767)).replaceAll('+', '-').replaceAll('/', '_');
    expect(imageSize(url)).toEqual({ width: 1_023, height: 767 });
  });

  test('is unknown, and never an error, if the data is truncated, empty, absurd or of another kind', () => {
    expect(imageSize('')).toBeNull();
    expect(imageSize(base64(png(0, 10)))).toBeNull();
    expect(imageSize(base64(png(2 ** 31, 10)))).toBeNull();
    const whole = [png, gif, webp.lossy, webp.extended, (w: number, h: number) => jpeg(w, h, 20)];
    fc.assert(
      fc.property(fc.constantFrom(...whole), fc.nat(90), fc.uint8Array(), (encode, length, tail) => {
        const size = imageSize(base64([...encode(640, 480).slice(0, length), ...tail]));
        if (size !== null) expect(Math.min(size.width, size.height)).toBeGreaterThan(0);
      }),
    );
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => void imageSize(text)),
      { numRuns: 300 },
    );
  });
});

describe('the tokens of an image', () => {
  test.each([
    // The first two are the provider's own examples.
    ['1,024 × 1,024 at high detail', imageUrl(png(1_024, 1_024), 'high'), 765],
    ['2,048 × 4,096 at high detail', imageUrl(png(2_048, 4_096), 'high'), 1_105],
    ['a wide strip, scaled to no more than 4 tiles', imageUrl(png(3_001, 500)), 85 + 4 * 170],
    ['a small icon', imageUrl(png(32, 32)), 255],
    ['a screenshot without a detail', imageUrl(png(1_920, 1_080)), 85 + 6 * 170],
    ['anything at low detail', imageUrl(png(4_096, 8_192), 'low'), LOW_DETAIL_IMAGE_TOKENS],
    [
      'a picture that must be fetched',
      { type: 'image_url', image_url: { url: 'https://x/y.png' } },
      IMAGE_TOKENS,
    ],
    ['a broken picture', imageUrl([1, 2, 3]), IMAGE_TOKENS],
  ])('OpenAI’s tiles: %s', (_, part, tokens) => {
    expect(mediaTokens(part)).toBe(tokens);
  });

  test('are the same in other formats', () => {
    const data = base64(png(1_024, 1_024));
    const url = `data:image/png;base64,${data}`;
    const shapes: ContentPart[] = [
      { type: 'input_image', image_url: url },
      { type: 'image', image: data, mediaType: 'image/png' },
      { type: 'image', data, mimeType: 'image/png' },
      { type: 'media_image', inline_data: { mime_type: 'image/png', data } },
    ];
    for (const part of shapes) expect(mediaTokens(part)).toBe(765);
  });

  test('Anthropic’s area where the part has Anthropic’s shape, scaled to its limits', () => {
    const image = (width: number, height: number): ContentPart => ({
      type: 'image',
      source: { type: 'base64', media_type: 'image/png', data: base64(png(width, height)) },
    });
    expect(mediaTokens(image(200, 200))).toBe(54);
    expect(mediaTokens(image(1_000, 1_000))).toBe(1_334);
    expect(mediaTokens(image(8_000, 6_000))).toBe(1_600);
    expect(mediaTokens(image(15_680, 100))).toBe(Math.ceil((1_568 * 10) / 750));
    expect(mediaTokens({ type: 'image', source: { type: 'url', url: 'https://x/y.png' } })).toBe(
      IMAGE_TOKENS,
    );
  });
});

describe('the tokens of a file', () => {
  const file = (data: string, mime = 'application/pdf'): ContentPart => ({
    type: 'file',
    file: {
      filename: 'a',
      file_data: `data:${mime};base64,${Buffer.from(data, 'latin1').toString('base64')}`,
    },
  });
  const filler = 'stream of compressed bytes\n'.repeat(40_000); // about 1 MB

  test('the pages that a PDF says it has, near its end or its start', () => {
    const tree = '1 0 obj << /Type /Pages /Kids [2 0 R] /Count 37 >> endobj';
    expect(mediaTokens(file(`%PDF-1.4\n${filler}${tree}\n%%EOF`))).toBe(37 * PDF_PAGE_TOKENS);
    expect(mediaTokens(file(`%PDF-1.6\n1 0 obj << /Linearized 1 /N 12 >>\n${filler}`))).toBe(
      12 * PDF_PAGE_TOKENS,
    );
  });

  test('its bytes as pages if a PDF compresses its pages, with a bound', () => {
    const pages = (bytes: number) => Math.ceil(bytes / 75_000);
    const pdf = `%PDF-1.7\n${filler}`;
    expect(mediaTokens(file(pdf))).toBe(pages(pdf.length) * PDF_PAGE_TOKENS);
    const claims = `%PDF-1.4\n${filler}/Count 999999`;
    expect(mediaTokens(file(claims))).toBeLessThanOrEqual(1_000 * PDF_PAGE_TOKENS);
  });

  test('its bytes as text if it is text', () => {
    const text = 'name,size\n'.repeat(1_000);
    expect(mediaTokens(file(text, 'text/csv'))).toBeCloseTo(text.length / 4, -1);
    const document = { type: 'document', source: { type: 'text', media_type: 'text/plain', data: text } };
    const counter = counterFor('o200k_base');
    expect(isMedia(document)).toBe(false);
    expect(countMessage({ role: 'user', content: [document] }, counter)).toBe(
      FRAMING_TOKENS + counter.count(text),
    );
  });

  test('a fixed number if it is unknown', () => {
    const unknown: ContentPart[] = [
      { type: 'file', file: { file_id: 'file-1' } },
      file('\x00\x01', 'application/octet-stream'),
      { type: 'video_url', video_url: { url: 'https://x/y.mp4' } },
      { type: 'file', file: { file_data: 'data:;base64,' } },
    ];
    for (const part of unknown) expect(mediaTokens(part)).toBe(OTHER_MEDIA_TOKENS);
  });
});

describe('the tokens of audio follow its seconds', () => {
  const audio = (bytes: readonly number[], format?: string): ContentPart => ({
    type: 'input_audio',
    input_audio: { data: base64(bytes), ...(format ? { format } : {}) },
  });
  const silence = (bytes: number): number[] => Array<number>(bytes).fill(0);

  test('by the byte rate that a WAV names, by the usual bit rate of other formats', () => {
    const header = [
      ...letters('RIFF'),
      ...le32(0),
      ...letters('WAVEfmt '),
      ...le32(16),
      ...le16(1),
      ...le16(1),
    ];
    const wav = [...header, ...le32(24_000), ...le32(48_000), ...silence(480_000)];
    expect(mediaTokens(audio(wav, 'wav'))).toBeCloseTo(100, -1);
    expect(mediaTokens(audio(silence(160_000), 'mp3'))).toBe(100);
  });

  test('and are fixed without a known format', () => {
    expect(mediaTokens(audio(silence(100)))).toBe(OTHER_MEDIA_TOKENS);
    expect(mediaTokens(audio(silence(100), 'constructor'))).toBe(OTHER_MEDIA_TOKENS);
    expect(mediaTokens({ type: 'input_audio' })).toBe(OTHER_MEDIA_TOKENS);
  });
});

describe('data inside a message', () => {
  const counter = counterFor('o200k_base');
  const data = 'iVBORw0KGgo'.repeat(2_000_000); // 22 MB

  test('is never counted as text: top-level fields, unknown parts, results inside user messages', () => {
    const messages = [
      { role: 'assistant' as const, content: 'ok', audio: { id: 'a', data } },
      { role: 'assistant' as const, content: 'ok', attachment: `data:application/zip;base64,${data}` },
      { role: 'user' as const, content: [{ type: 'novel', blob: data }] },
      {
        role: 'user' as const,
        content: [
          {
            type: 'tool_result',
            tool_use_id: 't',
            content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data } }],
          },
        ],
      },
    ];
    for (const message of messages)
      expect(countMessage(message, counter)).toBeLessThan(OTHER_MEDIA_TOKENS + 60);
  });

  test('has at most its tokens as text', () => {
    expect(encodedTokens('QUJD'.repeat(100))).toBe(100);
    expect(encodedTokens(data)).toBe(OTHER_MEDIA_TOKENS);
    const url = `data:image/png;base64,${base64([...png(1_024, 1_024), ...Array<number>(9_000).fill(1)])}`;
    expect(encodedTokens(url)).toBe(765);
  });
});
