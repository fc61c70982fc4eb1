/**
 * The memory of one micro-batch in flight on a stage, with every run bound to it.
 *
 * @module
 */

import type { Device, Kernel, Run, Tensor } from "./device.ts";
import type { TensorSpec } from "./layer.ts";
import { type LayerProgram, PORTS } from "./program.ts";

/** The parts of the backward pass: B whole, I for the input, W for the weights. */
export type BackwardKind = "B" | "I" | "W";

/** A layer of a stage, compiled. */
export interface StageLayer {
  /** Put before the names of its parameters. */
  readonly prefix: string;
  /** What it computes. */
  readonly program: LayerProgram;
  /** Its models, as far as they will be asked for. */
  readonly kernels: { readonly forward: Kernel } & Partial<Record<BackwardKind, Kernel>>;
}

/** The gradient of each layer's input, and last that of the stage's output. */
export type BoundaryGradients = readonly (Tensor | undefined)[];

/** The memory and the bound runs of one micro-batch in flight. */
export interface Slot {
  /** What the stage before sent; absent on the first stage. */
  readonly input?: Tensor;
  /** The fields of the micro-batch that the layers read. */
  readonly fields: Readonly<Record<string, Tensor>>;
  /** What the last layer returns. */
  readonly output: Tensor;
  /** Where gradients pass between layers. */
  readonly gradients: BoundaryGradients;
  /** First layer first. */
  readonly forward: readonly Run[];
  /** Last layer first. */
  readonly backward: Readonly<Record<BackwardKind, readonly Run[]>>;
}

/**
 * Allocates the gradients between layers. A whole backward needs two buffers for each size, as one
 * is read while the other is written; W reads what I left, so a split backward needs all of them.
 */
export function allocateGradients(
  device: Device,
  layers: readonly StageLayer[],
  isSplit: boolean,
): BoundaryGradients {
  const pool = new Map<string, Tensor>();
  const allocate = (spec: TensorSpec | undefined, i: number) => {
    if (!spec) return undefined;
    const key = isSplit ? `${i}` : `${i % 2} ${spec.shape}`;
    if (!pool.has(key)) pool.set(key, device.alloc("f32", spec.shape));
    return pool.get(key)!;
  };
  const last = layers.at(-1)!.program;
  const inputs = layers.map(({ program }, i) => allocate(program.input, i));
  return [...inputs, last.isLoss ? undefined : allocate(last.output, layers.length)];
}

/** Allocates a slot and binds its runs. What a stage shares between slots is given. */
export function createSlot(
  device: Device,
  layers: readonly StageLayer[],
  shared: {
    /** For each layer its parameters and their gradients, by port. */
    readonly parameters: readonly Readonly<Record<string, Tensor>>[];
    readonly lossScale: Tensor;
    readonly gradients: BoundaryGradients;
  },
): Slot {
  const allocate = ({ dtype, shape }: TensorSpec) => device.alloc(dtype, shape);
  const allocateAll = (specs: readonly TensorSpec[]) =>
    Object.fromEntries(specs.map((spec) => [spec.name, allocate(spec)]));
  const { gradients } = shared;
  const first = layers[0]!.program.input;
  const input = first && allocate(first);
  const fields: Record<string, Tensor> = {};
  const forward: Run[] = [];
  const backward: Record<BackwardKind, Run[]> = { B: [], I: [], W: [] };
  let x = input;
  layers.forEach(({ program, kernels }, i) => {
    const tensors: Record<string, Tensor> = { ...shared.parameters[i] };
    for (const field of program.fields) {
      fields[field.name] ??= allocate(field);
      tensors[PORTS.field(field.name)] = fields[field.name]!;
    }
    if (x) tensors[PORTS.input] = x;
    x = tensors[PORTS.output] = allocate(program.output);
    Object.assign(tensors, allocateAll(program.saved), kernels.I && allocateAll(program.carried));
    tensors[PORTS.lossScale] = shared.lossScale;
    if (gradients[i]) tensors[PORTS.inputGradient] = gradients[i];
    if (gradients[i + 1]) tensors[PORTS.outputGradient] = gradients[i + 1]!;
    forward.push(bind(kernels.forward, tensors));
    for (const kind of ["B", "I", "W"] as const) {
      const kernel = kernels[kind];
      if (kernel) backward[kind].unshift(bind(kernel, tensors));
    }
  });
  return { ...input && { input }, fields, output: x!, gradients, forward, backward };
}

/** Binds a kernel to the tensors that its inputs and outputs name. */
function bind(kernel: Kernel, tensors: Readonly<Record<string, Tensor>>): Run {
  const pick = (names: readonly string[]) =>
    Object.fromEntries(names.map((name) => [name, tensors[name]!]));
  return kernel.bind(pick(kernel.inputs), pick(kernel.outputs));
}
