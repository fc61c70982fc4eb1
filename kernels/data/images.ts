/**
 * PNG and JPEG images of one size as numbers.
 *
 * `pngjs` and `jpeg-js` decode them. They are fetched when images are first read, and need no other
 * packages: `fast-png` does, which Deno cannot load from its cache by address.
 *
 * @module
 */

import type { Buffer } from "node:buffer";
import { builtin } from "../builtin.ts";
import type { HostArray } from "../devices/device.ts";
import { assertInput, checkPositive, refusal } from "../errors.ts";
import { checkInputFile, damageOf, inputFileProblem } from "./files.ts";
import { pinnedPackage } from "./npm_packages.ts";
import type { TableSchema } from "./table_schema.ts";

const { createRequire } = builtin("node:module");
const { fileURLToPath } = builtin("node:url");
const { inflateSync } = builtin("node:zlib");
const { Buffer: NodeBuffer } = builtin("node:buffer");

/** The size of images, and how their values are scaled. */
type ImageScale = Omit<Extract<TableSchema[string], { readonly image: string }>, "image">;

const PNGJS = {
  name: "pngjs",
  version: "7.0.0",
  megabytes: 1,
  folder: "lib/",
  files: /\.js$/,
  sha256: "470128a64c21c8c77677bda87a6c2ec1eb8e30c7578dc5f11d7d12538881dcaf",
};

const JPEG_JS = {
  name: "jpeg-js",
  version: "0.4.4",
  megabytes: 1,
  folder: "",
  files: /^(index|lib\/(en|de)coder)\.js$/,
  sha256: "1faacd2569a88e8775c1661e6907cd8c1a896c0604f7ea52664c81d3298b05f4",
};

/** The functions of the packages in use, which return red, green, blue and alpha of each pixel. */
interface Decoders {
  readonly png: (bytes: Buffer) => { readonly data: Uint8Array };
  readonly jpeg: (bytes: Uint8Array, options: object) => { readonly data: Uint8Array };
}

let decoders: Decoders | undefined;

/**
 * Opens the decoders for {@linkcode decodeImage}.
 *
 * @throws {Error} when a package is neither cached nor available from the registry.
 */
export async function openDecoders(): Promise<void> {
  if (decoders) return;
  const require = createRequire(import.meta.url);
  const load = async (pinned: typeof PNGJS, path: string) =>
    require(fileURLToPath(new URL(path, (await pinnedPackage(pinned)).folder)));
  const [{ PNG }, { decode }] = await Promise.all([
    load(PNGJS, "png.js"),
    load(JPEG_JS, "index.js"),
  ]);
  decoders = { png: PNG.sync.read, jpeg: decode };
}

/** Largest number of values of an image. */
const VALUES_MAX = 2 ** 28;

/** Checks the size and the scale of images. */
export function checkScale({ size, mean = [], std = [] }: ImageScale): void {
  const isList = (all: unknown) => Array.isArray(all) || ArrayBuffer.isView(all);
  const isLists = [size, mean, std].every(isList) && size.length === 3;
  const lists = "size must be a list of 3 numbers, and mean and std must be lists";
  assertInput(isLists, "read images", lists, JSON.stringify({ size, mean, std }), TypeError);
  const [channels, height, width] = size;
  checkPositive("read images", { channels, height, width });
  const isSize = [1, 3, 4].includes(channels) && channels * height * width <= VALUES_MAX;
  const must = `the size must have 1, 3 or 4 channels and at most ${VALUES_MAX} values`;
  assertInput(isSize, "read images", must, size.join(" × "));
  for (const [name, all, least] of [["mean", mean, -Infinity], ["std", std, 0]] as const) {
    const isScale = all.every((value) => Number.isFinite(value) && value > least);
    const fits = isScale && [0, channels].includes(all.length);
    assertInput(fits, "read images", `${name} must have a number of each channel`, `[${all}]`);
  }
}

/** Bytes of the file of an image. */
const IMAGE_BYTES_MAX = 2 ** 28;

/** Channels of PNG's colour types: grey, colours, palette, grey and alpha, colours and alpha. */
const PNG_CHANNELS: readonly (number | undefined)[] = [1, , 3, 3, 2, , 4];

/** Returns format and size of an image, by the first bytes of its file. */
function headerOf(bytes: Buffer) {
  if (bytes.length >= 33 && bytes.toString("latin1", 0, 8) === "\x89PNG\r\n\x1a\n") {
    const width = bytes.readUInt32BE(16), height = bytes.readUInt32BE(20);
    return { isPng: true, channels: PNG_CHANNELS[bytes[25]!] ?? 0, height, width };
  }
  if (bytes[0] !== 0xff || bytes[1] !== 0xd8) return undefined;
  // True if a JPEG has red, green and blue, not brightness and colour, as libjpeg decides.
  let isRgb: boolean | undefined;
  for (let at = 2; at + 9 < bytes.length && bytes[at] === 0xff;) {
    const marker = bytes[at + 1]!;
    // A start of frame; the others in this range are tables.
    if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) {
      const height = bytes.readUInt16BE(at + 5), width = bytes.readUInt16BE(at + 7);
      const channels = bytes[at + 9]!;
      // The names of the channels are three bytes apart.
      isRgb ??= bytes.toString("latin1", at + 10, at + 17).replace(/(.)../gs, "$1") === "RGB";
      return { isPng: false, isRgb: isRgb && channels === 3, channels, height, width };
    }
    if (marker === 0xe0) isRgb ??= false; // JFIF
    // Adobe's segment ends with its transform: 0 for none.
    if (marker === 0xee && bytes.toString("latin1", at + 4, at + 9) === "Adobe") {
      isRgb ??= bytes[at + 15] === 0;
    }
    at += marker === 0xff ? 1 : 2 + bytes.readUInt16BE(at + 2);
  }
  return undefined;
}

/**
 * Throws unless the data of a PNG file has exactly its pixels, which `pngjs` does not check.
 *
 * @returns the file without a colour that counts as transparent: `pngjs` would make its pixels black.
 */
function checkPixels(
  bytes: Buffer,
  { height, width, channels }: NonNullable<ReturnType<typeof headerOf>>,
): Buffer {
  const isPalette = bytes[25] === 3, bits = bytes[24]! * (isPalette ? 1 : channels);
  const parts: Buffer[] = [];
  let opaque = bytes;
  for (let at = 8, length; at + 12 <= bytes.length; at += 12 + length) {
    length = bytes.readUInt32BE(at);
    const type = bytes.toString("latin1", at + 4, at + 8);
    // The decoder would take the size of the last header.
    if (type === "IHDR" && at !== 8) throw new RangeError("a second header");
    if (type === "IDAT") parts.push(bytes.subarray(at + 8, at + 8 + length));
    if (type === "tRNS" && !isPalette) {
      opaque = NodeBuffer.concat([bytes.subarray(0, at), bytes.subarray(at + 12 + length)]);
    }
  }
  const wanted = height * (1 + Math.ceil(width * bits / 8));
  const found = inflateSync(NodeBuffer.concat(parts), { maxOutputLength: wanted }).length;
  if (found !== wanted) throw new RangeError(`${found} of ${wanted} bytes`);
  return opaque;
}

/**
 * Decodes an image of a given size: channel after channel, each row after row, from 0 to 255.
 *
 * Grey becomes three equal colours, and alpha is left out, where the size has three channels.
 *
 * @param image the path of a file, its bytes, or a record with its `bytes`, as in Parquet files.
 * @param where such as `row 3`, for errors.
 * @throws {RangeError} when it is no such image, or damaged; the size is checked before it is decoded.
 */
export function decodeImage(image: unknown, { size }: ImageScale, where: string): Uint8Array {
  const { bytes: inside = image } = Object(image), isPath = typeof image === "string";
  const cannot = `read ${isPath ? image : `the image of ${where}`}`;
  const isGiven = isPath || inside instanceof Uint8Array;
  assertInput(isGiven, cannot, "it must be a path or bytes", typeof inside);
  if (isPath) checkInputFile(image, IMAGE_BYTES_MAX);
  const bytes = NodeBuffer.from(isPath ? Deno.readFileSync(image) : inside),
    found = headerOf(bytes);
  assertInput(found !== undefined, cannot, "it must be a PNG or JPEG image", "other bytes");
  const [channels, height, width] = size, { isPng } = found!;
  const isColour = found.channels === 3 || found.channels === 4;
  const fits = channels === 3 || (channels === 1 ? !isColour : found.channels === 4);
  const isSize = found.height === height && found.width === width;
  const sizes = [found.channels, found.height, found.width].join(" × ");
  assertInput(fits && isSize, cannot, `it must be an image of ${size.join(" × ")}`, sizes);
  const isPlain = !isPng || bytes[28] === 0;
  assertInput(isPlain, cannot, "it must be without interlacing", "Adam7");
  let data: Uint8Array;
  try {
    ({ data } = isPng ? decoders!.png(checkPixels(bytes, found!)) : decoders!.jpeg(bytes, {
      ...{ useTArray: true, tolerantDecoding: false, ...found!.isRgb && { colorTransform: false } },
      // More by less than a pixel: the decoder multiplies it again.
      maxResolutionInMP: (height * width + 0.5) / 1e6,
    }));
  } catch (cause) {
    throw refusal(cannot, "it must be a whole image", damageOf(cause));
  }
  const pixels = height * width, values = new Uint8Array(channels * pixels);
  for (let channel = 0; channel < channels; channel++) {
    for (let i = 0; i < pixels; i++) values[channel * pixels + i] = data[4 * i + channel]!;
  }
  return values;
}

/** A change of an image: rows and columns that it is moved by, and whether it is flipped then. */
interface ImageMove {
  readonly down: number;
  readonly right: number;
  readonly isFlipped: boolean;
}

/** Moves an image, with zeros where nothing was, and flips it left to right. */
export function moveImage<T extends HostArray>(
  values: T,
  [channels, height, width]: ImageScale["size"],
  { down, right, isFlipped }: ImageMove,
): T {
  const moved = new (values.constructor as new (length: number) => T)(values.length);
  for (let row = 0; row < channels * height; row++) {
    const y = row % height - down;
    if (y < 0 || y >= height) continue;
    for (let column = 0; column < width; column++) {
      const x = (isFlipped ? width - 1 - column : column) - right;
      if (x >= 0 && x < width) moved[row * width + column] = values[(row - down) * width + x]!;
    }
  }
  return moved;
}

/** Scales the values of images to 0 … 1, and then by the mean and the deviation of each channel. */
export function scaleImages(values: Uint8Array, { size, mean = [], std = [] }: ImageScale) {
  const [channels, height, width] = size, pixels = height * width;
  return Float32Array.from(values, (value, i) => {
    const channel = Math.floor(i / pixels) % channels;
    return (value / 255 - (mean[channel] ?? 0)) / (std[channel] ?? 1);
  });
}

/**
 * Returns the images in the sub-folders of a folder, both sorted by name: the path of each, and the
 * name of its folder. Names that begin with a dot are left out.
 *
 * @throws {RangeError} when a sub-folder has no image, or another folder.
 */
export function imagesIn(folder: string): { file: string; folder: string }[] {
  const entries = (path: string) => {
    const found = inputFileProblem(path) ?? "a file";
    assertInput(found === "a folder", `read ${path}`, "it must be a folder", found);
    return [...Deno.readDirSync(path)].filter(({ name }) => !name.startsWith("."))
      .sort((a, b) => a.name < b.name ? -1 : 1);
  };
  const classes = entries(folder).filter(({ isFile }) => !isFile);
  assertInput(classes.length > 0, `read ${folder}`, "it must have a folder of each class", "none");
  return classes.flatMap(({ name }) => {
    const path = `${folder}/${name}`, files = entries(path), cannot = `read ${path}`;
    const inner = files.find(({ isDirectory }) => isDirectory);
    assertInput(files.length > 0, cannot, "it must have an image at least", "none");
    assertInput(!inner, cannot, "it must have images only", `the folder ${inner?.name}`);
    return files.map((file) => ({ file: `${path}/${file.name}`, folder: name }));
  });
}
