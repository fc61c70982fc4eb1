/**
 * The kernels of chance and the memory in which they work, wherever their numbers then go.
 *
 * @module
 */

import { loadKernels, type SimdKernels } from "./load_kernels.ts";

/** Numbers that are drawn at once, at most. */
export const CHANCE_MAX = 16_384;

/** Where they lie; before them is room for the state of a generator. */
export const CHANCE_VALUES = 16;

const PAGE_BYTES = 65_536;

let opened: { readonly memory: WebAssembly.Memory; readonly kernels: SimdKernels } | undefined;

/** The kernels over a memory of their own, one in each isolate. */
export function chanceKernels(): NonNullable<typeof opened> {
  if (opened) return opened;
  const initial = Math.ceil((CHANCE_VALUES + 4 * CHANCE_MAX) / PAGE_BYTES);
  const memory = new WebAssembly.Memory({ initial, maximum: PAGE_BYTES, shared: true });
  return opened = { memory, kernels: loadKernels(memory) };
}
