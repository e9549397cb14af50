/** Reads width and height from the header of an image, a few dozen bytes, without decoding the image. */

export interface ImageSize {
  /** Pixels. */
  width: number;
  height: number;
}

/** Random access into base64: decodes only the groups of the requested bytes. */
type Read = (offset: number, length: number) => Buffer;

/**
 * Maximum number of JPEG segments that are read. Segments of at most 64 KB with EXIF data, colour profiles and thumbnails may precede
 * the segment with the size.
 */
const mostSegments = 500;
/** Number of characters searched for the header if the base64 has line breaks; the first break is within 200 characters. */
const wrappedCharacters = 1_000_000;
/** Larger than any image that providers accept; a larger value means that the header is invalid. */
const mostPixelsASide = 100_000;

function reader(base64: string): Read {
  const plain = /\s/.test(base64.slice(0, 200))
    ? base64.slice(0, wrappedCharacters).replace(/\s+/g, '')
    : base64;
  return (offset, length) => {
    const group = Math.floor(offset / 3);
    const skipped = offset - group * 3;
    const bytes = Buffer.from(plain.slice(group * 4, Math.ceil((offset + length) / 3) * 4), 'base64');
    return bytes.subarray(skipped, skipped + length);
  };
}

const ascii = (bytes: Buffer, from: number, to: number): string => bytes.toString('latin1', from, to);

/** w3.org/TR/png-3: the first chunk is IHDR. */
function pngSize(read: Read): ImageSize | null {
  const bytes = read(0, 24);
  if (bytes.length < 24 || ascii(bytes, 12, 16) !== 'IHDR') return null;
  return { width: bytes.readUInt32BE(16), height: bytes.readUInt32BE(20) };
}

function gifSize(read: Read): ImageSize | null {
  const bytes = read(0, 10);
  return bytes.length < 10 ? null : { width: bytes.readUInt16LE(6), height: bytes.readUInt16LE(8) };
}

/** developers.google.com/speed/webp/docs/riff_container: lossy, lossless and extended files. */
function webpSize(read: Read): ImageSize | null {
  const bytes = read(0, 30);
  if (bytes.length < 30 || ascii(bytes, 8, 12) !== 'WEBP') return null;
  switch (ascii(bytes, 12, 16)) {
    case 'VP8 ':
      return { width: bytes.readUInt16LE(26) & 0x3fff, height: bytes.readUInt16LE(28) & 0x3fff };
    case 'VP8L': {
      const bits = bytes.readUInt32LE(21);
      return { width: 1 + (bits & 0x3fff), height: 1 + ((bits >>> 14) & 0x3fff) };
    }
    case 'VP8X':
      return { width: 1 + bytes.readUIntLE(24, 3), height: 1 + bytes.readUIntLE(27, 3) };
    default:
      return null;
  }
}

const isFrame = (marker: number): boolean =>
  marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
const standsAlone = (marker: number): boolean => marker === 0x01 || (marker >= 0xd0 && marker <= 0xd7);
const endsHeader = (marker: number): boolean => marker === 0xda || marker === 0xd9;

/** w3.org/Graphics/JPEG/itu-t81.pdf, B.2: segments, each with its length, until the frame header. */
function jpegSize(read: Read): ImageSize | null {
  let at = 2;
  for (let segment = 0; segment < mostSegments; segment++) {
    const bytes = read(at, 9);
    if (bytes.length < 9 || bytes[0] !== 0xff) return null;
    const marker = bytes.readUInt8(1);
    if (marker === 0xff) at += 1;
    else if (standsAlone(marker)) at += 2;
    else if (isFrame(marker)) return { width: bytes.readUInt16BE(7), height: bytes.readUInt16BE(5) };
    else if (endsHeader(marker)) return null;
    else at += 2 + bytes.readUInt16BE(2);
  }
  return null;
}

function sizeIn(read: Read): ImageSize | null {
  const start = ascii(read(0, 8), 0, 8);
  if (start.startsWith('\x89PNG')) return pngSize(read);
  if (start.startsWith('GIF8')) return gifSize(read);
  if (start.startsWith('RIFF')) return webpSize(read);
  return start.startsWith('\xff\xd8') ? jpegSize(read) : null;
}

/** Size in pixels of a PNG, JPEG, GIF or WebP given as base64; null if its header has none. Never throws. */
export function imageSize(base64: string): ImageSize | null {
  const size = sizeIn(reader(base64));
  if (size === null) return null;
  const sides = [size.width, size.height];
  return sides.every((side) => side > 0 && side <= mostPixelsASide) ? size : null;
}
