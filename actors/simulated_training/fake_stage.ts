/**
 * The kernels of a stage in simulated training: a few f32 sums without a device.
 *
 * [Note: fakes are strict] Simulated training looks for mistakes of the actors. So the fake treats
 * numbers like kernels (each sum depends on its order, activations on the weights, gradients on both)
 * and throws where kernels would compute garbage: for an array that was transferred, an F or B out of
 * turn, a bucket that is stepped twice or before its sum is there.
 *
 * @module
 */

import type {
  Batch,
  Device,
  InputSpec,
  LayerProgram,
  MessageArray,
  OutputSpec,
  StageMemory,
  StageOptions,
  StageProgram,
  StageValues,
  TensorSpec,
} from "../../kernels/mod.ts";
import {
  type Bucket,
  BUCKET_SIZE,
  elementCount,
  F16_MAX,
  type FlatRange,
  haveLengths,
  keyed,
  layersOf,
  type NamedProgram,
  slicesOf,
  type Stage,
  type StageBorder,
  stageBorder,
  stageValues,
} from "../../kernels/internal.ts";
import { WeightVersions } from "../../kernels/stage/state.ts";
import { shouldFail } from "../runtime/mod.ts";
import type { StageKernels } from "../pipeline/stage_copies.ts";

/** Numbers by the keys of values. */
type Numbers = Record<string, Float32Array>;

/** Returns the number of elements of values. */
const sumOf = (specs: readonly TensorSpec[]): number =>
  specs.reduce((sum, { shape }) => sum + elementCount(shape), 0);

/** Returns values as numbers. */
const numbersOf = (passed: StageValues = {}): Numbers =>
  Object.fromEntries(
    Object.entries(keyed(passed)).map(([key, array]) => [key, Float32Array.from(array, Number)]),
  );

/** Joins values to one array; a missing value, such as a gradient of a mask, is zeros. */
export function joined(specs: readonly TensorSpec[], values: Numbers): Float32Array {
  const whole = new Float32Array(sumOf(specs));
  let offset = 0;
  for (const { name, shape } of specs) {
    const length = elementCount(shape), own = values[name];
    if (own) checkLength("a value", own, length);
    whole.set(own ?? [], offset);
    offset += length;
  }
  return whole;
}

/** Splits an array into values. */
function parted(specs: readonly TensorSpec[], whole: Float32Array): Numbers {
  let offset = 0;
  return Object.fromEntries(
    specs.map(({ name, shape }) => [name, whole.slice(offset, offset += elementCount(shape))]),
  );
}

/** Rounds numbers to the types of their values. */
const typed = (specs: readonly TensorSpec[], values: Numbers): Numbers =>
  numbersOf(arraysOf("F", specs, values));

/** Converts numbers to arrays of their types, in the arrays of `into` if given. */
function arraysOf(
  what: string,
  specs: readonly TensorSpec[],
  values: Numbers,
  into: StageValues = {},
): StageValues {
  const arrays = keyed(into);
  return stageValues(
    Object.fromEntries(specs.map(({ name, dtype }) => {
      const numbers = values[name] as Float32Array<ArrayBuffer>;
      const array = arrays[name] as Float32Array<ArrayBuffer> | undefined;
      // Like kernels, it leaves an array of samples of another length.
      if (array && (array.length === 0 || array.length === numbers.length)) {
        checkLength(what, array, numbers.length);
        array.set(numbers);
        return [name, array];
      }
      if (dtype === "i32") return [name, Int32Array.from(numbers)];
      if (dtype === "i64") {
        return [name, BigInt64Array.from(numbers, (one) => BigInt(Math.trunc(one)))];
      }
      if (dtype === "bool") return [name, Uint8Array.from(numbers, (one) => Number(one !== 0))];
      return [name, numbers];
    })),
  );
}

/** Adds values to a sum. */
function addTo(sum: Float32Array, values: Float32Array): void {
  for (let i = 0; i < sum.length; i++) sum[i]! += values[i]!;
}

/** Refuses an array of another length. */
function checkLength(what: string, { length }: ArrayLike<number>, must: number): void {
  // An array that was transferred away has no elements.
  if (length !== must) throw refused(what, `an array must have ${must} values`, String(length));
}

/** An error about an action that kernels would not run. */
export function refused(what: string, must: string, received: string): RangeError {
  return new RangeError(`Cannot simulate ${what}: ${must}, received ${received}`);
}

/** Sites of injected faults: losses that are not finite, and an optimizer that fails. */
const FAULT_SITES = ["kernel overflow", "bucket step"] as const;

/** A layer: its inputs, its outputs, and its weights in the flat array. */
interface Layer {
  readonly inputs: readonly InputSpec[];
  readonly outputs: readonly OutputSpec[];
  /** Elements of all its inputs, and of all its outputs. */
  readonly width: number;
  readonly made: number;
  readonly field: string | undefined;
  readonly weights: FlatRange;
}

/** The stage for one length of samples. */
interface FakeLength {
  readonly layers: readonly Layer[];
  readonly border: StageBorder;
}

/** A micro-batch in flight. */
interface InFlight extends FakeLength {
  /** For each layer, its inputs. */
  readonly inputs: readonly Float32Array[];
  /** The weights of its forward, which must stay as they are until its backward. */
  readonly version: number;
  /** For each layer, the gradient of its output, from I on. */
  gradients?: readonly Float32Array[];
  /** True after R. */
  isRecomputed?: true;
}

/** Values that slices of a micro-batch share, like keys and values of an attention. */
interface SliceContext {
  /** Slices after their F, slices before their B or I, and slices in flight. */
  begun: number;
  left: number;
  live: number;
  /** For each layer, the sum of inputs of earlier slices, and of gradients of later slices. */
  readonly past: readonly Float32Array[];
  readonly later: readonly Float32Array[];
}

/** No device, no memory. */
const NO_MEMORY: StageMemory = {
  device: {
    weights: 0,
    gradients: 0,
    master: 0,
    moments: 0,
    activations: 0,
    buckets: 0,
    other: 0,
  },
  host: { master: 0, moments: 0 },
};

/** Opens the fake of a stage; its models never run. */
export const openFakeStage = (
  _device: Device,
  program: StageProgram,
  options: StageOptions,
): StageKernels => new FakeStage(program, options);

function portsOf(program: LayerProgram) {
  const { fields, inputs, outputs } = program;
  const [field] = inputs.length === 0 ? fields : [];
  return {
    inputs,
    outputs,
    width: sumOf(field ? [field] : inputs),
    made: sumOf(outputs),
    field: field?.name,
  };
}

/** The fake kernels of a stage. */
export class FakeStage implements StageKernels {
  readonly isLast: boolean;
  readonly buckets: readonly Bucket[];
  readonly memory = NO_MEMORY;
  readonly sums = undefined;
  readonly #lengths: readonly FakeLength[];
  readonly #ranges = new Map<string, FlatRange>();
  /** The weights of each version. */
  readonly #buffers: readonly Float32Array[];
  readonly #versions: WeightVersions;
  readonly #gradients: Float32Array;
  readonly #live = new Map<number, InFlight>();
  /** Ranges of gradients that were read to be summed, and were not written. */
  readonly #away = new Map<number, number>();
  /** Ranges whose sum was written, which may be read without another. */
  readonly #summed = new Set<number>();
  /** For each micro-batch in slices, its shared values. */
  readonly #contexts = new Map<number, SliceContext>();
  readonly #slices: number;
  /** Buckets that the current step has not stepped. */
  #due = new Set<number>();
  #rate = 0;

  constructor(program: StageProgram, { bucketSize = BUCKET_SIZE, versions = 1 }: StageOptions) {
    let length = 0;
    const layerOf = ({ prefix, program: own }: NamedProgram): Layer => {
      const offset = length;
      for (const { name, shape } of own.parameters) {
        const range = { offset: length, length: elementCount(shape) };
        this.#ranges.set(prefix + name, range);
        length += range.length;
      }
      return { ...portsOf(own), weights: { offset, length: length - offset } };
    };
    this.#lengths = (program.lengths ? slicesOf(program) : [layersOf(program)]).map((named) => {
      length = 0; // All lengths have the same parameters.
      return { layers: named.map(layerOf), border: stageBorder(program, named) };
    });
    this.buckets = Array.from({ length: Math.ceil(length / bucketSize) }, (_, i) => ({
      offset: i * bucketSize,
      length: Math.min(bucketSize, length - i * bucketSize),
      isDecayed: false,
    }));
    this.isLast = program.programs[program.layers.at(-1)!.program]!.isLoss;
    this.#slices = program.slicing?.slices ?? 1;
    this.#buffers = Array.from({ length: versions }, () => new Float32Array(length));
    this.#versions = new WeightVersions(versions);
    this.#gradients = new Float32Array(length);
  }

  /** The newest weights, in the order of the layers. */
  get weights(): Float32Array {
    return this.#buffers[this.#versions.newest]!;
  }

  get #versionsInUse(): Set<number> {
    return new Set(this.#live.values().map(({ version }) => version));
  }

  get weightVersions(): number {
    return this.#versionsInUse.add(this.#versions.newest).size;
  }

  get liveActivations(): number {
    return this.#live.size;
  }

  reset(): void {
    for (const key of [...this.#live.keys()]) this.drop(key);
    this.zeroGradients();
  }

  rangeOf(parameter: string): FlatRange {
    return this.#ranges.get(parameter)!;
  }

  /** y = x + w, both repeated to the longer length; for a slice plus all x before it. */
  forward(key: number, input: StageValues | undefined, fields: Batch, into?: StageValues, age = 0) {
    if (this.#live.has(key)) throw refused("F", `${key} must not be in flight`, "it again");
    const context = this.#beginSlice(key);
    const version = this.#versions.at(age), weights = this.#buffers[version]!;
    const inputs: Float32Array[] = [], values = numbersOf(input);
    const own = this.#lengths.find(({ layers, border }) =>
      haveLengths(border.inputs, values) &&
      layers.every(({ field, width }) => field === undefined || fields[field]?.length === width)
    ) ?? this.#lengths[0]!;
    for (const [l, layer] of own.layers.entries()) {
      const { width, made, field, weights: { offset, length } } = layer;
      const given = field === undefined
        ? joined(layer.inputs, values)
        : Float32Array.from(fields[field] as Float32Array);
      checkLength("F", given, width);
      inputs.push(given);
      const y = new Float32Array(made);
      for (let i = 0; i < Math.max(width, made); i++) {
        const weight = length > 0 ? weights[offset + i % length]! : 0;
        y[i % made]! += (width > 0 ? given[i % width]! : 0) + weight;
        if (context) y[i % made]! += context.past[l]![i % width]!;
      }
      if (context) addTo(context.past[l]!, given);
      Object.assign(values, typed(layer.outputs, parted(layer.outputs, y)));
    }
    this.#live.set(key, { inputs, version, ...own });
    if (this.isLast && shouldFail(FAULT_SITES[0])) values.x!.fill(NaN);
    const output = arraysOf("F", own.border.outputs, values, into);
    return Promise.resolve({ output, isLoss: this.isLast });
  }

  /** Checks only the order. */
  recompute(key: number): Promise<void> {
    const one = this.#live.get(key);
    if (!one || one.isRecomputed || one.gradients) {
      throw refused("R", `${key} must be between F and its backward, once`, "it elsewhere");
    }
    one.isRecomputed = true;
    return Promise.resolve();
  }

  drop(key: number): void {
    if (!this.#live.delete(key)) throw refused("B", `${key} must be in flight`, "it is not");
    const sequence = Math.floor(key / this.#slices), context = this.#contexts.get(sequence);
    if (context && --context.live === 0) this.#contexts.delete(sequence);
  }

  /** Begins the next slice of a micro-batch; returns undefined for a whole one. */
  #beginSlice(key: number): SliceContext | undefined {
    const slices = this.#slices, sequence = Math.floor(key / slices);
    if (slices === 1) return undefined;
    const zeros = () => this.#lengths[0]!.layers.map(({ width }) => new Float32Array(width));
    const known = this.#contexts.get(sequence);
    const context = known ?? { begun: 0, left: slices, live: 0, past: zeros(), later: zeros() };
    if (context.begun !== key % slices) {
      throw refused("F", `slices of ${sequence} must run in order`, `${key % slices}`);
    }
    context.begun++;
    context.live++;
    this.#contexts.set(sequence, context);
    return context;
  }

  /** Checks that backwards of slices run in reverse. */
  #takeSlice(kind: string, key: number): SliceContext | undefined {
    const slices = this.#slices, context = this.#contexts.get(Math.floor(key / slices));
    if (!context) return undefined;
    if (--context.left === key % slices) return context;
    throw refused(kind, `slices must run in reverse, ${context.left} next`, `${key % slices}`);
  }

  /** dw += dy · (1 + x), one sample after the other, and dx = dy. */
  backward(
    key: number,
    kind: "B" | "I" | "W",
    gradient: StageValues | undefined,
    lossScale: number,
    into?: StageValues,
  ): Promise<StageValues | undefined> {
    const one = this.#live.get(key);
    if (!one) throw refused(kind, `${key} must have had its F here`, "it had none");
    if (kind === "W" ? !one.gradients : one.gradients) {
      throw refused(kind, `I and W of ${key} must run once, in this order`, kind);
    }
    const found = kind === "W"
      ? undefined
      : this.#propagate(one, kind, gradient, lossScale, this.#takeSlice(kind, key));
    if (kind !== "I") {
      this.#accumulate(one);
      this.drop(key);
    }
    const { leaving } = one.border;
    if (!found || leaving.length === 0) return Promise.resolve(undefined);
    return Promise.resolve(arraysOf(kind, leaving, found, into));
  }

  #propagate(
    one: InFlight,
    kind: string,
    gradient: StageValues | undefined,
    lossScale: number,
    context: SliceContext | undefined,
  ): Numbers {
    const gradients: Float32Array[] = [], sums = numbersOf(gradient);
    for (const [l, { inputs, outputs, width, made }] of [...one.layers.entries()].reverse()) {
      const isLoss = this.isLast && l === one.layers.length - 1;
      const dy = isLoss ? new Float32Array(made).fill(lossScale) : joined(outputs, sums);
      checkLength(kind, dy, made);
      gradients.unshift(dy);
      const dx = new Float32Array(width);
      for (let i = 0; width > 0 && i < Math.max(width, made); i++) {
        dx[i % width]! += dy[i % made]!;
      }
      if (context) {
        const own = Float32Array.from(dx);
        addTo(dx, context.later[l]!);
        addTo(context.later[l]!, own);
      }
      const parts = parted(inputs, dx);
      for (const { name, gradient } of inputs) {
        if (gradient === "added") addTo(sums[name]!, parts[name]!);
        else if (gradient) sums[name] = parts[name]!;
      }
    }
    one.gradients = gradients;
    return sums;
  }

  #accumulate({ layers, inputs, gradients }: InFlight): void {
    for (const [l, { weights: { offset, length } }] of layers.entries()) {
      const x = inputs[l]!, dy = gradients![l]!;
      for (let i = 0; length > 0 && i < Math.max(x.length, dy.length); i++) {
        this.#gradients[offset + i % length]! += dy[i % dy.length]! * (1 + (x[i % x.length] ?? 0));
      }
    }
  }

  zeroGradients(): void {
    this.#gradients.fill(0);
    this.#away.clear();
    this.#summed.clear();
  }

  checkGradients(copies: number): Promise<boolean> {
    return Promise.resolve(this.#gradients.every((one) => Math.abs(one) * copies <= F16_MAX));
  }

  gradientSquares(): Promise<Map<string, number>> {
    const squares = new Map<string, number>();
    for (const [name, { offset, length }] of this.#ranges) {
      let sum = 0;
      for (let i = offset; i < offset + length; i++) sum += this.#gradients[i]! ** 2;
      squares.set(name, sum);
    }
    return Promise.resolve(squares);
  }

  readGradients(offset: number, length: number): Promise<MessageArray> {
    // All of them are read for a mirror, not to be summed.
    const isAll = length === this.#gradients.length;
    if (!isAll && !this.#summed.has(offset)) this.#away.set(offset, length);
    return Promise.resolve(this.#gradients.slice(offset, offset + length));
  }

  async copyGradients(offset: number, into: Float32Array | Float16Array): Promise<void> {
    into.set(await this.readGradients(offset, into.length));
  }

  writeGradients(offset: number, values: Float32Array | Float16Array): void {
    checkLength("a sum", values, this.#away.get(offset) ?? values.length);
    this.#away.delete(offset);
    this.#summed.add(offset);
    this.#gradients.set(values, offset);
  }

  beginStep(_step: number, learningRate: number, gradientScale: number): void {
    if (this.#due.size > 0) {
      throw refused("a step", "the one before must have stepped every bucket", "it has not");
    }
    const from = this.weights;
    this.#versions.advance(this.#versionsInUse);
    this.weights.set(from);
    this.#due = new Set(this.buckets.keys());
    this.#rate = learningRate * gradientScale;
  }

  stepBucket(index: number): Promise<void> {
    if (shouldFail(FAULT_SITES[1])) throw new Error("Cannot step a bucket: a fault was injected");
    if (!this.#due.delete(index)) {
      throw refused("a step", `bucket ${index} must be stepped once`, "it again");
    }
    const { offset, length } = this.buckets[index]!;
    for (const [from, count] of this.#away) {
      if (from >= offset + length || offset >= from + count) continue;
      throw refused("a step", `bucket ${index} must have its sum`, "it before");
    }
    const weights = this.weights;
    for (let i = offset; i < offset + length; i++) {
      weights[i]! -= this.#rate * this.#gradients[i]!;
    }
    return Promise.resolve();
  }

  async optimize(step: number, learningRate: number, gradientScale = 1): Promise<void> {
    this.beginStep(step, learningRate, gradientScale);
    for (const bucket of this.buckets.keys()) await this.stepBucket(bucket);
  }

  load({ weights }: Parameters<Stage["load"]>[0]): void {
    for (const name of this.#ranges.keys()) this.write(name, weights.get(name)!);
  }

  /** Writes weights; a fake has no moments. */
  write(name: string, values: Float32Array, from = 0): void {
    const range = this.#ranges.get(name);
    if (range) this.weights.set(values, range.offset + from);
  }

  read(parts: Parameters<Stage["read"]>[0]): ReturnType<Stage["read"]> {
    const read = parts.flatMap(({ name, from, to }) => {
      const { offset } = this.#ranges.get(name)!;
      return [...this.weights.subarray(offset + from, offset + to)];
    });
    return Promise.resolve(Float32Array.from(read));
  }

  scan(...[what, see]: Parameters<Stage["scan"]>): Promise<void> {
    see(what === "state" ? this.weights : this.#gradients);
    return Promise.resolve();
  }

  save(): ReturnType<Stage["save"]> {
    const weights = new Map<string, Float32Array>();
    for (const [name, { offset, length }] of this.#ranges) {
      weights.set(name, this.weights.slice(offset, offset + length));
    }
    return Promise.resolve({ weights, moments: new Map() });
  }
}
