/**
 * What is known of an adapter: a GPU, or software that takes the place of one.
 *
 * @module
 */

/** What an adapter is. */
export type AdapterKind = "discrete" | "integrated" | "virtual" | "software" | "other";

/** An adapter of this machine. Plain data: any process of the machine can use it. */
export interface Adapter {
  /** Its number, from 0: what `--device webgpu:n` and `--adapters` name. */
  readonly index: number;
  /** What its driver calls it. */
  readonly name: string;
  /** What it is. */
  readonly kind: AdapterKind;
  /** Bytes of the largest memory that is its own; 0 where the system does not tell. */
  readonly memoryBytes: number;
  /** Bytes of the largest buffer that a kernel can use. */
  readonly maxBufferBytes: number;
  /** Whether its kernels compute in FP16 (shader-f16). */
  readonly hasF16: boolean;
  /** Environment variables with which a process sees this adapter first. */
  readonly environment: Readonly<Record<string, string>>;
}

/** An adapter that cannot be used. */
export interface RefusedAdapter {
  /** What its driver calls it; the driver's file, where it did not come so far. */
  readonly name: string;
  /** Why not, in words that follow "received". */
  readonly reason: string;
}

/** Whether an adapter is a GPU. */
export const isHardware = ({ kind }: Pick<Adapter, "kind">): boolean => kind !== "software";
