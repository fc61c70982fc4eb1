/**
 * The program of a child process that learns which adapters a process with its environment sees, and
 * whether ONNX Runtime's provider takes the first: drivers may print, hang or crash here, and nobody
 * minds. It prints a {@linkcode ProbeAnswer} in JSON.
 *
 * It imports nothing but files of this folder's kind, so it runs without a configuration.
 *
 * @module
 */

import { type GpuApi, openGpu } from "./gpu_api.ts";
import { listVulkanDevices, type VulkanDevice } from "./vulkan.ts";

/** URL of the program. Who imports it has the program at hand, also where no network is. */
export const PROBE = import.meta.url;

/** What the child is asked: its only argument, in JSON. */
export interface ProbeRequest {
  /** The ONNX Runtime library. */
  readonly library: string;
  /** Whether the provider is tried where there is nothing but software. */
  readonly triesSoftware: boolean;
  /** Models in ONNX, in base64: of one node `y = -x`, 4 elements, in FP32 and in FP16. */
  readonly models: { readonly f32: string; readonly f16: string };
}

/** What the provider makes of the first adapter. */
export type ProviderAnswer =
  | { readonly problem: string }
  | { readonly problem?: undefined; readonly hasF16: boolean };

/** What the child says. */
export interface ProbeAnswer {
  /** The Vulkan devices that it sees, in the loader's order; undefined on other systems. */
  readonly devices: readonly VulkanDevice[] | undefined;
  /** What Deno's own WebGPU says of the system's first adapter; undefined where Vulkan tells. */
  readonly system: SystemAdapter | undefined;
  /** Undefined where it was not tried. */
  readonly provider: ProviderAnswer | undefined;
}

/** What Deno's own WebGPU says of an adapter. */
interface SystemAdapter {
  readonly name: string;
  readonly isSoftware: boolean;
  readonly maxBufferBytes: number;
}

async function probe({ library, triesSoftware, models }: ProbeRequest): Promise<ProbeAnswer> {
  const devices = Deno.build.os === "linux" ? listVulkanDevices() : undefined;
  const system = devices ? undefined : await systemAdapter();
  const isWanted = devices
    ? devices.some(({ kind }) => kind !== "software" || triesSoftware)
    : triesSoftware || system?.isSoftware === false;
  return { devices, system, provider: isWanted ? tryProvider(library, models) : undefined };
}

/** The adapter that Deno itself would use: the same, where there is one. */
async function systemAdapter(): Promise<SystemAdapter | undefined> {
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) return undefined;
  const { info, limits: { maxBufferSize, maxStorageBufferBindingSize } } = adapter;
  return {
    name: info.description || info.device || "the system's default adapter",
    isSoftware: info.isFallbackAdapter,
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
  // Further trials of the adapter go here, before that of FP16, which may fail.
  return { hasF16: computes(gpu, bytesOf(f16), 4 * 2, ONNX_F16) };
}

const ONNX_F16 = 10;

/** Whether a model `y = f(x)` of 4 elements runs. */
function computes(gpu: GpuApi, model: Uint8Array, byteLength: number, onnxDtype: number): boolean {
  try {
    const session = gpu.createSession(model);
    const [x, y] = [0, 1].map(() =>
      gpu.deviceTensor(gpu.allocate(BUFFER_BYTES), byteLength, [4], onnxDtype)
    );
    gpu.bind(session, [{ name: "x", tensor: x! }], [{ name: "y", tensor: y! }]).run();
    return true;
  } catch {
    return false;
  }
}

const BUFFER_BYTES = 16;

if (import.meta.main) {
  const answer = await probe(JSON.parse(Deno.args[0]!));
  Deno.stdout.writeSync(new TextEncoder().encode(JSON.stringify(answer)));
  // What was made on the GPU goes with the process, whose end may crash: the answer is out.
  Deno.exit(0);
}
