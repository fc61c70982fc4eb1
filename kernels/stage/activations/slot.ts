/**
 * One micro-batch in flight on a stage: its activations, with every run bound to them.
 *
 * @module
 */

import type { ActivationOptions, Activations, Ports } from "./activations.ts";
import type { Kernel, Run, Tensor } from "../../devices/device.ts";
import { PORTS } from "../../compile/layer_program.ts";
import type { NamedProgram } from "../../compile/stage_program.ts";
import type { ParameterStore } from "../../optimizer/parameters.ts";
import { segmentsOf } from "../recompute_interval.ts";

/** The parts of the backward pass: B whole, I for the input, W for the weights. */
export type BackwardKind = "B" | "I" | "W";

/** A layer of a stage, compiled. */
export interface StageLayer extends NamedProgram {
  /** Its models, as far as they exist and will be asked for. */
  readonly kernels:
    & { readonly forward: Kernel; readonly overwrites: readonly Kernel[] }
    & Partial<Record<BackwardKind, Kernel>>;
}

/** The backward of a segment of layers. */
export interface SegmentBackward {
  /** Forwards that compute its activations again; one array for all kinds of backward. */
  readonly again: readonly Run[];
  /** What writes over activations; it runs once after they were computed. */
  readonly overwrites: readonly Run[];
  /** Last layer first. */
  readonly runs: readonly Run[];
}

/** A micro-batch in flight. */
export interface Slot extends Activations {
  /** First layer first. */
  readonly forward: readonly Run[];
  /** {@linkcode SegmentBackward.again} of the last segment, whose activations F leaves behind. */
  readonly fresh: readonly Run[];
  /** Last segment first. */
  readonly backward: Readonly<Record<BackwardKind, readonly SegmentBackward[]>>;
}

/** For each layer its parameters and their gradients, by port. */
export type ParameterPorts = readonly Readonly<Record<string, Tensor>>[];

/** The parameters of a stage, in one version of its weights, where its layers look for them. */
export function parameterPorts(
  layers: readonly StageLayer[],
  { parameters }: ParameterStore,
  frozen: ReadonlyMap<string, Tensor>,
  version: number,
): ParameterPorts {
  const byName = new Map(parameters.map((parameter) => [parameter.name, parameter]));
  return layers.map(({ prefix, program }) =>
    Object.fromEntries(program.parameters.flatMap(({ name }) => {
      const fixed = frozen.get(prefix + name);
      if (fixed) return [[PORTS.parameter(name), fixed]];
      const { weights, gradient } = byName.get(prefix + name)!;
      return [
        [PORTS.parameter(name), weights[version]!],
        [PORTS.accumulator(name), gradient],
        [PORTS.gradient(name), gradient],
      ];
    }))
  );
}

/** Binds the runs of one micro-batch, or of one slice of its sequences. */
export function bindSlot(
  layers: readonly StageLayer[],
  activations: Activations,
  options: ActivationOptions,
  shared: {
    readonly parameters: ParameterPorts;
    readonly lossScale: Tensor;
    /** For each layer what the slices of the micro-batch keep for each other. */
    readonly context: readonly Ports[];
    /** See {@linkcode SharedActivations.again}. */
    readonly again: Ports;
    /** Has the masks of a layer ready. */
    readonly prepareMasks: (layer: number) => void;
  },
): Slot {
  const isAgain = options.recomputeInterval !== undefined;
  const bound = layers.map(({ kernels, program }, i) => {
    const lossScale = { [PORTS.lossScale]: shared.lossScale };
    const own = activations.ports[i]!;
    const inPlace = Object.fromEntries(
      program.saved.map(({ name }) => [PORTS.overwritten(name), own[name]!]),
    );
    const context = shared.context[i];
    const tensors = { ...shared.parameters[i], ...own, ...inPlace, ...lossScale, ...context };
    const { masks = [] } = program;
    const bindRun = (kernel: Kernel, outputs: Ports = {}): Run => {
      const run = bind(kernel, tensors, { ...tensors, ...outputs });
      if (!masks.some(({ name }) => kernel.inputs.includes(name))) return run;
      return () => {
        shared.prepareMasks(i);
        return run();
      };
    };
    const runOf = (kernel: Kernel | undefined) => kernel && bindRun(kernel);
    // With an interval, W cannot read what I has left: it is B again.
    const { forward, overwrites, B, I, W } = kernels, whole = runOf(B);
    const addsAgain = I !== undefined && B?.outputs.some((name) => name in shared.again);
    return {
      forward: bindRun(forward),
      overwrites: overwrites.map((kernel) => bindRun(kernel)),
      B: whole,
      I: runOf(I),
      W: isAgain ? (addsAgain ? bindRun(B!, shared.again) : whole) : runOf(W),
    };
  });
  const forward = bound.map((runs) => runs.forward);
  const segments = segmentsOf(layers, options.recomputeInterval).map(({ from, to }) => {
    // The output of a segment is kept, or nothing reads it: a last layer that saves nothing rests.
    const end = layers[to - 1]!.program.saved.length > 0 ? to : to - 1;
    return { from, to, again: isAgain ? forward.slice(from, end) : [] };
  });
  const firstTrained = layers.findIndex(({ program }) => program.models.weight);
  const backward = (kind: BackwardKind) =>
    segments.toReversed().flatMap(({ from, to, again }): SegmentBackward[] => {
      if (kind === "W" && (firstTrained < 0 || to <= firstTrained)) return [];
      const runs = bound.slice(from, to).reverse().map((one) => one[kind]);
      // Without an interval, W reads what I has written over.
      const isOver = kind === "W" && !isAgain;
      const overwrites = isOver ? [] : bound.slice(from, to).flatMap((one) => one.overwrites);
      return [{ again, overwrites, runs: runs.filter((run) => run !== undefined) }];
    });
  return {
    ...activations,
    forward,
    fresh: segments.at(-1)!.again,
    backward: { B: backward("B"), I: backward("I"), W: backward("W") },
  };
}

/** Binds a kernel to the tensors that its inputs and outputs name. */
function bind(kernel: Kernel, inputs: Ports, outputs: Ports): Run {
  const pick = (names: readonly string[], tensors: Ports) =>
    Object.fromEntries(names.map((name) => [name, tensors[name]!]));
  return kernel.bind(pick(kernel.inputs, inputs), pick(kernel.outputs, outputs));
}
