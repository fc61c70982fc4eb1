/**
 * TFRecord, the framing of TensorFlow's files: each record with its length, and a checksum of both.
 *
 * @module
 */

/** The polynomial of Castagnoli (CRC-32C, RFC 3720), its lowest bit first. */
const POLYNOMIAL = 0x82f63b78;

/** What each byte makes of a checksum of 0. */
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >>> 1 ^ POLYNOMIAL : crc >>> 1;
  return crc;
});

/**
 * The CRC-32C of some bytes.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(crc32c(new TextEncoder().encode("123456789")), 0xe3069283);
 * ```
 */
export function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = TABLE[(crc ^ byte) & 0xff]! ^ crc >>> 8;
  return (crc ^ 0xffffffff) >>> 0;
}

/** A checksum as it is stored: that of bytes with checksums in them would be a poor one. */
const masked = (crc: number): number => (crc >>> 15 | crc << 17) + 0xa282ead8 >>> 0;

/** A record: its length in 8 bytes, their checksum, its bytes, their checksum; little-endian. */
export function tfRecord(data: Uint8Array): Uint8Array<ArrayBuffer> {
  const record = new Uint8Array(8 + 4 + data.length + 4), view = new DataView(record.buffer);
  view.setBigUint64(0, BigInt(data.length), true);
  view.setUint32(8, masked(crc32c(record.subarray(0, 8))), true);
  record.set(data, 12);
  view.setUint32(12 + data.length, masked(crc32c(data)), true);
  return record;
}
