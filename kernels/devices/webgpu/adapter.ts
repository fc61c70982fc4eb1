/**
 * What is known of an adapter: a GPU, or software that takes the place of one.
 *
 * @module
 */

/** An adapter of this machine. */
export interface Adapter {
  /** Its number, from 0: what `--device webgpu:n` and `--adapters` name. */
  readonly index: number;
  /** What its driver calls it. */
  readonly name: string;
  /** What it is. */
  readonly kind: "discrete" | "integrated" | "virtual" | "software" | "other";
  /** Bytes of the largest memory that is its own. */
  readonly memoryBytes: number;
  /** Bytes of the largest buffer that a kernel can use. */
  readonly maxBufferBytes: number;
  /** Whether its kernels compute in FP16 (shader-f16). */
  readonly hasF16: boolean;
  /** Environment variables with which a process sees this adapter first. */
  readonly environment: Readonly<Record<string, string>>;
}
