/**
 * The program of a child process that lists the adapters visible in its environment, and checks that
 * ONNX Runtime's provider accepts the first: drivers may print, hang or crash here without effect on
 * the parent. It prints a {@linkcode ProbeAnswer} in JSON.
 *
 * It only imports files in this package, so it runs without a configuration.
 *
 * @module
 */

import { resultOr } from "../../errors.ts";
import { type GpuApi, openGpu } from "./gpu_api.ts";
import { listVulkanDevices, type SeenAdapter, type VulkanDevice } from "./vulkan.ts";

/** URL of the program. Importing it caches the program for use without a network. */
export const PROBE = import.meta.url;

/** Request to the child: its only argument, in JSON. */
export interface ProbeRequest {
  /** The ONNX Runtime library. */
  readonly library: string;
  /** True if the provider is tried with software adapters only. */
  readonly triesSoftware: boolean;
  /** Models in ONNX, in base64: of one node `y = -x`, 4 elements, in FP32 and in FP16. */
  readonly models: { readonly f32: string; readonly f16: string };
}

/** Result of the provider for the first adapter. */
export type ProviderAnswer =
  | { readonly problem: string }
  | { readonly problem?: undefined; readonly hasF16: boolean };

/** Answer of the child. */
export interface ProbeAnswer {
  /** The visible Vulkan devices, in the loader's order; undefined on other systems. */
  readonly devices: readonly VulkanDevice[] | undefined;
  /** The system's first adapter by Deno's WebGPU; undefined if Vulkan is used. */
  readonly system: SeenAdapter | undefined;
  /** Undefined if the provider was not tried. */
  readonly provider: ProviderAnswer | undefined;
}

async function probe({ library, triesSoftware, models }: ProbeRequest): Promise<ProbeAnswer> {
  const devices = Deno.build.os === "linux" ? listVulkanDevices() : undefined;
  const system = devices ? undefined : await systemAdapter();
  const isWanted = devices
    ? devices.some(({ kind }) => kind !== "software" || triesSoftware)
    : triesSoftware || system?.kind === "other";
  return { devices, system, provider: isWanted ? tryProvider(library, models) : undefined };
}

/** Returns the adapter that Deno would use: the only one if the machine has one. */
async function systemAdapter(): Promise<SeenAdapter | undefined> {
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) return undefined;
  const { info, limits: { maxBufferSize, maxStorageBufferBindingSize } } = adapter;
  return {
    name: info.description || info.device || "the system's default adapter",
    kind: info.isFallbackAdapter ? "software" : "other",
    memoryBytes: 0,
    maxBufferBytes: Math.min(maxBufferSize, maxStorageBufferBindingSize),
  };
}

const bytesOf = (base64: string) => Uint8Array.fromBase64(base64);

function tryProvider(library: string, { f32, f16 }: ProbeRequest["models"]): ProviderAnswer {
  let gpu: GpuApi;
  try {
    gpu = openGpu(library, bytesOf(f32));
  } catch (error) {
    return { problem: (error as Error).message };
  }
  // Add further trials of the adapter before that of FP16, which may fail.
  return { hasF16: resultOr(() => compute(gpu, bytesOf(f16)), false) };
}

const ONNX_F16 = 10;

/** Runs a model `y = f(x)` of 4 elements in FP16. */
function compute(gpu: GpuApi, model: Uint8Array): true {
  const session = gpu.createSession(model);
  const tensorOf = (name: string) => (
    { name, tensor: gpu.deviceTensor(gpu.allocate(BUFFER_BYTES), 4 * 2, [4], ONNX_F16) }
  );
  gpu.bind(session, [tensorOf("x")], [tensorOf("y")]).run();
  return true;
}

const BUFFER_BYTES = 16;

if (import.meta.main) {
  const answer = await probe(JSON.parse(Deno.args[0]!));
  Deno.stdout.writeSync(new TextEncoder().encode(JSON.stringify(answer)));
  // The objects on the GPU end with the process, whose exit may crash: the answer is written.
  Deno.exit(0);
}
