/**
 * Compiles a whole model to plain data; equal layers share one program.
 *
 * @module
 */

import { type Batch, lengthsOf } from "../batch.ts";
import { dependentValues, passesGradient, sourcesOf } from "../ops/autodiff.ts";
import { assertInput, refusal, resultOr } from "../errors.ts";
import { elementCount } from "../graph/shapes.ts";
import type { Node, NodeGraph, Value } from "../graph/value.ts";
import { sharedKind } from "../layers/decoder.ts";
import { gpt2, type Gpt2Config } from "../layers/gpt2.ts";
import {
  type AnyLayer,
  checkTies,
  fieldProblem,
  type Model,
  modelFields,
  NotGivenError,
  type Tie,
} from "../layers/layer.ts";
import { llama, type LlamaConfig } from "../layers/llama.ts";
import {
  type CompileOptions,
  type ForwardGraph,
  type LayerOptions,
  type OpenLayer,
  openLayer,
} from "./compile_layer.ts";
import {
  boundsProblem,
  fieldBounds,
  haveLengths,
  isSkip,
  type LayerProgram,
  type OutputSpec,
  type Recompute,
  slicesOf,
  type StageProgram,
} from "./programs.ts";

/** The operation in refusals of models. */
const COMPILE = "compile model";

/** Describes the problem of a micro-batch; undefined if there is none. */
export type BatchCheck = (batch: Batch) => string | undefined;

/**
 * Returns the check of a model's micro-batches: the fields that its layers read, their types and
 * lengths, and the bounds of rows and classes.
 *
 * @param halves number of parts in which each micro-batch is computed; the model is compiled for one.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, mlp } from "@troupe/troupe/kernels";
 *
 * const model = mlp({ inputs: 2, hidden: 4, layers: 1, classes: 3 }, 1);
 * const check = batchCheck(compileModel(model, "none"));
 * const features = Float32Array.of(0.5, 1);
 * assert.equal(check({ features, labels: Int32Array.of(2) }), undefined);
 * assert.equal(
 *   check({ features, labels: Int32Array.of(3) }),
 *   'the field "labels" must hold whole numbers from -1 to 2, received 3 at position 0',
 * );
 * ```
 */
export function batchCheck(model: StageProgram, halves = 1): BatchCheck {
  const all = slicesOf(model).map((layers) => layers.map(({ program }) => program));
  const { lengths, slicing } = model;
  if (!lengths) return checkOf(all.flat(), slicing, halves);
  const checks = all.map((programs) => checkOf(programs, undefined, halves));
  return (batch) => {
    const own = all.findIndex((programs) =>
      haveLengths(programs.flatMap(({ fields }) => fields), batch, halves)
    );
    if (own >= 0) return checks[own]!(batch);
    return `${checks[0]!(batch)}; samples may have ${lengths.join(", ")} tokens`;
  };
}

function checkOf(
  programs: readonly LayerProgram[],
  slicing = { slices: 1, samples: 1 },
  halves: number,
): BatchCheck {
  const parts = halves * slicing.slices, divisor = parts * slicing.samples;
  const asked = [...new Set(programs)].flatMap((program) => {
    const bounds = fieldBounds(program);
    return program.fields.map((spec) => ({
      spec: { ...spec, shape: spec.shape.map((size, i) => i === 0 ? size * parts : size) },
      bounds: bounds.get(spec.name),
    }));
  });
  return (batch) => {
    for (const { spec } of asked) {
      const problem = fieldProblem(spec, batch);
      if (problem !== undefined) return `it ${problem}`;
    }
    // Other fields are cut, too.
    for (const [name, { length }] of parts > 1 ? Object.entries(batch) : []) {
      if (Number.isInteger(length / divisor)) continue;
      return `the field "${name}" must be divisible by ${divisor}, received ${length} elements`;
    }
    for (const { spec: { name }, bounds } of asked) {
      const problem = bounds && boundsProblem(name, batch[name]!, bounds);
      if (problem !== undefined) return problem;
    }
  };
}

/** Returns the prefix of the names of a layer's parameters. */
const prefixOf = ({ name, prefix = `${name}.` }: Pick<AnyLayer, "name" | "prefix">) => prefix;

/**
 * Compiles the layers of a model in order, each for all slices.
 *
 * [Note: stopped gradients] A parameter from which every path to the loss passes through a
 * `g.stopGradient` gets no gradient. It is compiled as a frozen one: with a gradient of zero the
 * optimizer would still decay its weights. This is as in PyTorch, where it has no `grad`. Of tied
 * parameters it suffices that one gets a gradient.
 */
function* compileLayers(
  { layers, ties = [] }: Pick<Model, "layers" | "ties">,
  recompute: Recompute,
  options: CompileOptions,
  cut: ReturnType<typeof cutModel> | undefined,
  known: Map<string, LayerProgram>,
): Generator<{ readonly layer: AnyLayer; readonly compiled: readonly LayerProgram[] }> {
  const { endsWithLoss = true, frozen, precision, slices = 1 } = options;
  const canonicalOf = new Map(ties.map(([canonical, alias]) => [alias, canonical]));
  const canonical = (name: string) => canonicalOf.get(name) ?? name;
  const all = cut?.layers ?? layers;
  const optionsOf = (layer: AnyLayer, i: number, index: number): LayerOptions => ({
    isLoss: endsWithLoss && i === layers.length - 1,
    recompute,
    precision,
    ...slices > 1 && { slice: { index, count: slices } },
    ...frozen && { frozen: (own) => frozen(canonical(prefixOf(layer) + own)) },
  });
  const opened = openLayers(all, slices, optionsOf);
  const uses = opened.flatMap(([{ takes }], i) => takes.map((name) => [name, i] as const));
  const lastUse = new Map(uses);
  for (const [i, [{ gives }]] of opened.entries()) {
    const unused = [...gives.keys()].find((name) => !lastUse.has(name));
    const wanted = `${JSON.stringify(unused)}, which the layer ${named(all[i]!)} gives`;
    const must = `a later layer must take ${wanted}`;
    assertInput(unused === undefined, COMPILE, must, "none that does", TypeError);
  }
  const ends = gradientEnds(all, opened.map((one) => one.at(-1)!.forward), endsWithLoss);
  const trained = new Set(ends.trained.map(canonical));
  const stopped = new Set(ends.stopped.map(canonical)).difference(trained);
  if (stopped.size > 0) {
    const all = (name: string) => stopped.has(name) || (frozen?.(name) ?? false);
    const stopping = { ...options, frozen: all };
    return yield* compileLayers({ layers, ties }, recompute, stopping, cut, known);
  }
  const compiled = new Map<OpenLayer, LayerProgram>();
  for (const [i, layer] of all.entries()) {
    const isLastUse = (name: string) => lastUse.get(name) === i;
    const compile = (one: OpenLayer) =>
      compiled.getOrInsertComputed(one, () => one.compile(isLastUse, known));
    yield { layer, compiled: opened[i]!.map(compile) };
  }
}

/**
 * Returns, by full name, the parameters that get a gradient, and the parameters whose gradient is
 * stopped by `g.stopGradient`.
 *
 * @throws {TypeError} when another parameter gets none and is not frozen; it names the operation.
 */
function gradientEnds(
  layers: readonly AnyLayer[],
  forwards: readonly ForwardGraph[],
  endsWithLoss: boolean,
): { readonly trained: readonly string[]; readonly stopped: readonly string[] } {
  /** Returns, by layer, the values with an effect on the loss along nodes that pass it on. */
  const effective = (passes: (g: NodeGraph, node: Node) => boolean) => {
    let keys = new Set<string>();
    return forwards.toReversed().map(({ g, inputs, outputs }, i) => {
      const isEnd = !endsWithLoss || i === 0;
      const ends = outputs.filter(({ spec }) => isEnd || keys.has(spec.name));
      const sources = sourcesOf(g, ends.map(({ value }) => value), (node) => passes(g, node));
      const read = inputs.filter(({ value }) => sources.has(value)).map(({ spec }) => spec.name);
      keys = new Set([...[...keys].filter(isSkip), ...read]);
      return sources;
    }).toReversed();
  };
  const differentiable = effective(passesGradient), all = effective(() => true);
  const unstopped = effective((g, node) => !g.stops.has(node));
  const trained: string[] = [], stopped: string[] = [];
  for (const [i, { parameters }] of forwards.entries()) {
    for (const { spec: { name, frozen }, value } of parameters) {
      if (frozen) continue;
      const isStopped = all[i]!.has(value) && !unstopped[i]!.has(value);
      if (differentiable[i]!.has(value)) trained.push(prefixOf(layers[i]!) + name);
      else if (isStopped) stopped.push(prefixOf(layers[i]!) + name);
      else {
        const end = endOf(forwards, unstopped, i, value),
          cannot = `train layer ${named(layers[i]!)}`;
        const uses = "the result must depend on every parameter";
        if (!end) throw refusal(cannot, uses, `"${name}" unused`, TypeError);
        const advice = "where that is wanted, write g.stopGradient(x) or freeze the parameter";
        const received = `none through ${end.op} of layer ${named(layers[end.layer]!)}; ${advice}`;
        const must = `a gradient must come to its parameter "${name}"`;
        throw refusal(cannot, must, received, TypeError);
      }
    }
  }
  return { trained, stopped };
}

/** Returns the first operation after a layer's parameter that passes no gradient on. */
function endOf(
  forwards: readonly ForwardGraph[],
  unstopped: readonly ReadonlySet<Value>[],
  first: number,
  parameter: Value,
): { readonly op: string; readonly layer: number } | undefined {
  let keys = new Set<string>();
  for (let layer = first; layer < forwards.length; layer++) {
    const { g, inputs, outputs } = forwards[layer]!;
    const read = inputs.filter(({ spec }) => keys.has(spec.name)).map(({ value }) => value);
    const dependent = dependentValues(g, layer === first ? [parameter] : read);
    const node = g.nodes.find((node) =>
      node.inputs.some((input) => dependent.has(input)) && !passesGradient(g, node) &&
      !g.stops.has(node) && node.outputs.some((output) => unstopped[layer]!.has(output))
    );
    if (node) return { op: node.op, layer };
    const made = outputs.filter(({ value }) => dependent.has(value)).map(({ spec }) => spec.name);
    keys = new Set([...[...keys].filter(isSkip), ...made]);
  }
}

type OpenSlices = readonly [OpenLayer, ...OpenLayer[]];

/** Builds the forward of every layer for all slices; equal layers of a decoder share one. */
function openLayers(
  layers: readonly AnyLayer[],
  slices: number,
  optionsOf: (layer: AnyLayer, i: number, slice: number) => LayerOptions,
): OpenSlices[] {
  const opened: OpenSlices[] = [], given = new Map<string, OutputSpec>();
  const shared = new Map<string, OpenSlices>();
  let handed: readonly OutputSpec[] | undefined;
  const open = (i: number): OpenSlices => {
    const layer = layers[i]!, { isLoss, frozen } = optionsOf(layer, i, 0);
    const make = () =>
      Array.from(
        { length: slices },
        (_, slice) => openLayer(layer, handed, { ...optionsOf(layer, i, slice), given }),
      ) as unknown as OpenSlices;
    const kind = frozen ? undefined : sharedKind(layer.build);
    if (kind === undefined) return make();
    return shared.getOrInsertComputed(JSON.stringify([kind, handed, isLoss]), make);
  };
  for (const i of layers.keys()) {
    try {
      opened.push(open(i));
    } catch (cause) {
      throw circleError(cause, layers, i, (later) => open(later)[0].gives);
    }
    handed = opened[i]![0].handed;
    for (const [name, spec] of opened[i]![0].gives) given.set(name, spec);
  }
  return opened;
}

const named = ({ name }: AnyLayer) => JSON.stringify(name);

/** Returns an error with the circle if a layer takes a value that only a later one gives. */
function circleError(
  cause: unknown,
  layers: readonly AnyLayer[],
  user: number,
  givesOf: (layer: number) => ReadonlyMap<string, unknown>,
): unknown {
  const error = cause instanceof Error && cause.cause instanceof NotGivenError
    ? cause.cause
    : undefined;
  if (!error) return cause;
  // The input of a layer may be unknown.
  const gives = (layer: number) => resultOr(() => givesOf(layer).has(error.value), false);
  const maker = layers.findIndex((_, layer) => layer > user && gives(layer));
  if (maker < 0) return cause;
  const circle = [...layers.slice(user, maker + 1), layers[user]!].map(named);
  const shown = circle.length > 6 ? [...circle.slice(0, 3), "…", ...circle.slice(-2)] : circle;
  const taken = JSON.stringify(error.value), received = `a circle: ${shown.join(" → ")}`;
  const must = `the layer ${named(layers[user]!)} must not take ${taken} from a later one`;
  return refusal(COMPILE, must, received);
}

/**
 * Cuts the sequences of a model.
 *
 * @throws {TypeError} when its samples are not sequences, or their number is unknown.
 * @throws {RangeError} when their tokens are not divisible by `slices`.
 */
function cutModel(
  model: Pick<Model, "name" | "layers" | "samples" | "withSlices">,
  slices: number,
) {
  const { name, samples, withSlices } = model;
  if (!withSlices || samples === undefined) {
    const must = "the model must have sequences, and say so with withSlices and samples";
    const received = `${name} without ${withSlices ? "samples" : "withSlices"}`;
    const cannot = `Cannot cut sequences into ${slices} slices`;
    throw new TypeError(`${cannot}: ${must}; received ${received}`);
  }
  const whole = new Map(modelFields(model).map((spec) => [spec.name, spec]));
  return {
    /** The layers; each is compiled for every slice. */
    layers: withSlices(slices),
    slicing: { slices, samples },
    /**
     * Checks the programs of a layer for all slices.
     *
     * @throws {TypeError} with the name of the layer, when they differ where they must not.
     */
    check(layer: AnyLayer, compiled: readonly LayerProgram[]) {
      const cannot = `cut the layer ${named(layer)} into ${slices} slices`;
      const shared = compiled.map((program) =>
        JSON.stringify([program.parameters, program.outputs, program.isLoss])
      );
      if (new Set(shared).size > 1) {
        const must = "its parameters and its output must be alike in all slices";
        throw new TypeError(`Cannot ${cannot}: ${must}`);
      }
      for (const { name, shape } of compiled.flatMap(({ fields }) => fields)) {
        const all = whole.get(name)?.shape;
        const isCut = all !== undefined && elementCount(shape) * slices === elementCount(all);
        const must = `of its field "${name}" each slice must have one part of ${slices}`;
        assertInput(isCut, cannot, must, `[${shape}] of [${all ?? ""}]`, TypeError);
      }
    },
  };
}

/**
 * Returns a model for each of its lengths, the longest first.
 *
 * @throws {TypeError} when its samples are not sequences, or their length is unknown.
 */
export function modelsOfLengths<M extends Pick<Model, "name" | "length" | "withLength">>(
  model: M,
): readonly (M | Model)[] {
  const { name, length, withLength } = model;
  if (length !== undefined && withLength) {
    return [model, ...lengthsOf(length).slice(1).map(withLength)];
  }
  const must = "the model must have sequences, and say so with withLength and length";
  const received = `${name} without ${withLength ? "length" : "withLength"}`;
  const cannot = "Cannot train on samples of different lengths";
  throw new TypeError(`${cannot}: ${must}; received ${received}`);
}

/** A parameter of a model, with its full name. */
export interface ModelParameter {
  /** Its full name: `transformer.h.0.ln_1.weight`. */
  readonly name: string;
  /** Its shape. */
  readonly shape: readonly number[];
  /** Its declaration in the layer. */
  readonly spec: LayerProgram["parameters"][number];
  /** True if it is not trained. */
  readonly isFrozen: boolean;
}

/** A compiled model. */
export interface ModelProgram extends StageProgram {
  /** The model's name. */
  readonly name: string;
  /** Predictions of one micro-batch. */
  readonly predictions: Model["predictions"];
  /** The parameters of all layers in order, including frozen ones, without aliases of ties. */
  readonly parameters: readonly ModelParameter[];
  /** Pairs of parameters that share one value. */
  readonly ties: readonly Tie[];
  /** Estimated cost of each layer's forward and backward, in floating-point operations. */
  readonly costs: readonly number[];
  /** For each stage the index of its first layer, if a layout defines it. */
  readonly starts?: readonly number[];
  /** Jobs whose adapters share its frozen weights. */
  readonly jobs?: Omit<NonNullable<StageProgram["jobs"]>, "variants"> & {
    readonly variants: readonly ModelProgram[];
  };
}

/**
 * Compiles a model's layers; equal layers share one program.
 *
 * @throws {TypeError} when two parameters have the same name, a tie names none of them or a tied
 * one, a value is given twice or never taken, or a layer cannot be built.
 * @throws {RangeError} when a layer takes a value that no earlier layer gives (if a later one does, the
 * message shows the circle), tied parameters differ in shape, the parameters are too large, or the
 * tokens of a sample are not divisible by `slices`.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, gpt2 } from "@troupe/troupe/kernels";
 *
 * const model = gpt2({ layers: 4, hidden: 32, heads: 4, seq: 16, vocab: 64 }, 2);
 * const program = compileModel(model, "cheap");
 * assert.equal(program.layers.length, 10);
 * assert.equal(program.programs.length, 4); // embedding, attention, mlp, head
 * ```
 */
export function compileModel(
  model:
    & Pick<Model, "name" | "layers" | "predictions" | "ties">
    & Pick<Model, "samples" | "withSlices" | "length" | "withLength">,
  recompute: Recompute,
  options: CompileOptions = {},
): ModelProgram {
  const { name, predictions, ties = [] } = model;
  const { elementsMax = Infinity, slices = 1, lengths = false } = options;
  const programs: LayerProgram[] = [], indexOf = new Map<LayerProgram, number>();
  const layers: StageProgram["layers"][number][] = [];
  const parameters = new Map<string, ModelParameter>();
  const cut = slices > 1 ? cutModel(model, slices) : undefined;
  const known = new Map<string, LayerProgram>();
  const [whole, ...shorter] = (lengths ? modelsOfLengths(model) : [model])
    .map((one) => compileLayers(one, recompute, options, cut, known));
  let elements = 0;
  for (const { layer, compiled: own } of whole!) {
    const prefix = prefixOf(layer), [program] = own as [LayerProgram];
    cut?.check(layer, own);
    const others = shorter.map((one) => one.next().value?.compiled[0]);
    const compiled = [...own, ...others.filter((one) => one !== undefined)];
    const kinds = new Set([...own, ...others].map((one) => JSON.stringify(one?.parameters)));
    const alike = "withLength must keep the layers and their parameters";
    assertInput(kinds.size === 1, `compile the layer ${named(layer)}`, alike, "others", TypeError);
    const indices = compiled.map((one) =>
      indexOf.getOrInsertComputed(one, () => programs.push(one) - 1)
    );
    const { name, block } = layer;
    const isNew = !program.masks || layers.every((other) => other.name !== name);
    const unique = "names of layers with dropout must be unique";
    assertInput(isNew, COMPILE, unique, `"${name}" twice`, TypeError);
    const place = { name, ...block && { block }, prefix, program: indices[0]! };
    layers.push({ ...place, ...cut && { slices: indices }, ...lengths && { lengths: indices } });
    for (const spec of program.parameters) {
      const name = prefix + spec.name;
      const must = "names of parameters must be unique";
      assertInput(!parameters.has(name), COMPILE, must, `"${name}" twice`, TypeError);
      const own = elementCount(spec.shape), few = `it must have at most ${elementsMax} elements`;
      assertInput(own <= elementsMax, `hold the parameter "${name}"`, few, `shape [${spec.shape}]`);
      elements += own;
      const all = `its parameters must be at most ${elementsMax} numbers`;
      assertInput(elements <= elementsMax, "hold the model", all, `more up to "${name}"`);
      parameters.set(name, { name, shape: spec.shape, spec, isFrozen: spec.frozen ?? false });
    }
  }
  checkTies(ties, parameters);
  for (const [, alias] of ties) parameters.delete(alias);
  return {
    name,
    predictions,
    programs,
    layers,
    parameters: [...parameters.values()],
    ties,
    costs: layers.map(({ program, slices = [program] }) =>
      slices.map((one) => programs[one]!.cost)
        .reduce((sum, { forward, backward }) => sum + forward + backward, 0)
    ),
    ...cut && { slicing: cut.slicing },
    ...lengths && { lengths: lengthsOf(model.length!) },
  };
}

/**
 * Returns the parameters of a GPT-2 by name and shape, those of the head last; a tied head has none.
 *
 * @throws {RangeError} when a size is not a positive integer, or heads do not divide hidden.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { gpt2Parameters } from "@troupe/troupe/kernels";
 *
 * const parameters = gpt2Parameters({ layers: 3, hidden: 8, heads: 2, seq: 4, vocab: 16 });
 * assert.equal(parameters.length, 2 + 3 * 12 + 3);
 * const { name, shape } = parameters.at(-1)!;
 * assert.deepEqual([name, shape], ["lm_head.weight", [16, 8]]);
 * ```
 */
export const gpt2Parameters = (config: Gpt2Config): readonly ModelParameter[] =>
  parametersOf(gpt2(config, 1), config.layers, "transformer.h.");

/**
 * Returns the parameters of a Llama by name and shape, those of the head last; a tied head has none.
 *
 * @throws {RangeError} when a size is invalid.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { llamaParameters } from "@troupe/troupe/kernels";
 *
 * const parameters = llamaParameters({ layers: 3, hidden: 8, heads: 2, seq: 4, vocab: 16 });
 * assert.equal(parameters.length, 1 + 3 * 9 + 2);
 * assert.deepEqual(parameters.at(-1)!.shape, [16, 8]);
 * ```
 */
export const llamaParameters = (config: LlamaConfig): readonly ModelParameter[] =>
  parametersOf(llama(config, 1), config.layers, "model.layers.");

/** Compiles only one block, since blocks are equal and their number may come from an untrusted file. */
function parametersOf(model: Model, count: number, prefix: string): ModelParameter[] {
  const layers = model.layers.filter(({ block = "head" }) => ["block 0", "head"].includes(block));
  const { parameters } = compileModel({ ...model, layers }, "none"), first = `${prefix}0.`;
  const isOfBlock = ({ name }: ModelParameter) => name.startsWith(first);
  const block = parameters.filter(isOfBlock), at = parameters.findIndex(isOfBlock);
  const renamed = (name: string, i: number) => `${prefix}${i}.${name.slice(first.length)}`;
  const blocks = Array.from(
    { length: count },
    (_, i) => block.map((one) => ({ ...one, name: renamed(one.name, i) })),
  );
  return [...parameters.slice(0, at), ...blocks.flat(), ...parameters.slice(at + block.length)];
}
