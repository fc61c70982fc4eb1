/**
 * The seal of a journal's lines: each ends with a sum of itself and of all lines of its isolate
 * before it, so that none can be changed, left out, doubled or moved unseen.
 *
 * @module
 */

import { Digest } from "../digest.ts";

/** What stands between the text of a line and its sum. */
const BEFORE_SUM = ',"sum":"';

/** What a line ends with: its sum and the end of its record. */
const SUM_LENGTH = BEFORE_SUM.length + 16 + '"}'.length;

const ENCODER = new TextEncoder();

/** Short lines are encoded here: an array of its own for each would cost more than its sum. */
const SCRATCH = new Uint8Array(1 << 14);

/** The bytes of a text, until the next is encoded. */
function encode(text: string): Uint8Array<ArrayBuffer> {
  // No character of UTF-16 needs more than three bytes.
  if (3 * text.length > SCRATCH.length) return ENCODER.encode(text);
  return SCRATCH.subarray(0, ENCODER.encodeInto(text, SCRATCH).written);
}

/** Seals lines one after another, or checks lines that were sealed. */
export class Seal {
  readonly #digest = new Digest();
  /** The sum so far. */
  #lanes: readonly [number, number];

  /**
   * Begins a chain of lines: the header alone, or those of an isolate, which hang on the header.
   *
   * @param header sum of the header, empty for the header itself.
   * @param isolate number of the isolate.
   */
  constructor(header = "", isolate = 0) {
    this.#lanes = this.#digest.text(header).word(isolate).lanes();
  }

  /** Adds its sum to the text of a record that is not empty. */
  close(record: string): string {
    const text = record.slice(0, -1);
    return `${text}${BEFORE_SUM}${this.#next(text)}"}`;
  }

  /** The sum that a line should have, as the next of the chain. */
  sumOf(line: string): string {
    return this.#next(line.slice(0, -SUM_LENGTH));
  }

  #next(text: string): string {
    const { buffer, byteOffset, byteLength } = encode(text);
    const digest = this.#digest.reset().word(this.#lanes[0]).word(this.#lanes[1]);
    this.#lanes = digest.bytes(buffer, byteOffset, byteLength).lanes();
    return digest.toString();
  }
}

/** The sum that a line says it has, or what stands in its place. */
export function sumIn(line: string): string {
  const end = line.slice(-SUM_LENGTH);
  return end.startsWith(BEFORE_SUM) && end.endsWith('"}')
    ? end.slice(BEFORE_SUM.length, -2)
    : "none";
}
