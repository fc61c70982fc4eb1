/**
 * Cuts a model at the nodes that other kernels than ONNX Runtime's compute, such as our SIMD kernels,
 * and runs its parts: sessions of ONNX Runtime, and calls of those kernels between.
 *
 * Nodes are scheduled as early as possible, in turns: all ready nodes of the engine, then all of ours.
 * This gives the smallest number of parts.
 *
 * @module
 */

import { create, toBinary } from "@bufbuild/protobuf";
import { elementCount } from "../../graph/shapes.ts";
import { type TensorSpec, TROUPE, type ValueType } from "../../graph/value.ts";
import { encodeValueInfo } from "../../onnx/encode.ts";
import { valueTypes } from "../../onnx/lower.ts";
import {
  GraphProtoSchema,
  type ModelProto,
  ModelProtoSchema,
  type NodeProto,
} from "../../onnx/onnx_pb.ts";
import { signatureOf } from "../../onnx/signature.ts";
import { DTYPE_BYTES } from "../device.ts";
import { ALIGNMENT } from "./ort_library.ts";
import { scratchBytes } from "../../onnx/scratch.ts";
import type { Binding, Bindings, BoundProgram, Program } from "../engine.ts";

/** The steps in which a value is needed, inclusive. */
interface Lifetime {
  readonly name: string;
  readonly byteLength: number;
  readonly from: number;
  to: number;
}

/** Gives each value, in order, the first place that is free during its lifetime. */
export function layoutValues(
  lifetimes: readonly Lifetime[],
): Pick<CutModel<PartCall>, "offsets" | "sharedBytes"> {
  const placed: (Lifetime & { readonly start: number; readonly end: number })[] = [];
  for (const value of lifetimes) {
    const size = Math.ceil(value.byteLength / ALIGNMENT) * ALIGNMENT;
    const others = placed.filter(({ from, to }) => from <= value.to && to >= value.from);
    let start = 0;
    for (const other of others.toSorted((a, b) => a.start - b.start)) {
      if (start + size <= other.start) break;
      start = Math.max(start, other.end);
    }
    placed.push({ ...value, start, end: start + size });
  }
  return {
    offsets: new Map(placed.map(({ name, start }) => [name, start])),
    sharedBytes: placed.reduce((most, { end }) => Math.max(most, end), 0),
  };
}

/** A call of a kernel, for one node. */
export interface PartCall {
  /** Bytes of its working memory. */
  readonly workBytes?: number;
  /** Bytes of its result, if only other calls read it, in a type of theirs. */
  readonly outputBytes?: number;
}

/** A part of a model: a model for the engine, or a call for one node. */
export type Part<Call extends PartCall> =
  & { readonly inputs: readonly TensorSpec[]; readonly outputs: readonly TensorSpec[] }
  & (
    | { readonly model: Uint8Array }
    | { readonly call: Call }
  );

/** A model in parts, in the order of computation. */
export interface CutModel<Call extends PartCall> {
  readonly parts: readonly Part<Call>[];
  /** Constants that calls read. */
  readonly constants: ReadonlyMap<string, Uint8Array>;
  /** Offsets of values between parts and of working memory, in memory that the parts share. */
  readonly offsets: ReadonlyMap<string, number>;
  /** Bytes of that memory. */
  readonly sharedBytes: number;
}

/**
 * Cuts a model; undefined if it has no calls, or the shape of a value between parts is unknown.
 *
 * @param callOf returns the call of a node, given the types of values; undefined if it has none.
 */
export function cutModel<Call extends PartCall>(
  model: ModelProto,
  callOf: (node: NodeProto, types: ReadonlyMap<string, ValueType>) => Call | undefined,
): CutModel<Call> | undefined {
  const { graph } = model;
  if (!graph) return undefined;
  const { inputs, outputs } = signatureOf(graph), types = valueTypes(graph);
  const constants = new Map(graph.initializer.map((one) => [one.name!, one.rawData]));
  const calls = new Map<NodeProto, Call>();
  for (const node of graph.node) {
    const isReadable = node.input.every((name) => !constants.has(name) || constants.get(name));
    const call = isReadable ? callOf(node, types) : undefined;
    if (call) calls.set(node, call);
    else if (node.domain === TROUPE) return undefined;
  }
  if (calls.size === 0) return undefined;
  const groups = groupNodes(graph.node, [...constants.keys(), ...inputs.map(nameOf)], calls);
  const results = new Set(outputs.map(nameOf));
  const names = groups.map((nodes, i) =>
    calls.has(nodes[0]!)
      ? { inputs: nodes[0]!.input, outputs: nodes[0]!.output }
      : borderNames(nodes, results.union(namesRead(groups.slice(i + 1).flat())), constants)
  );
  const known = (name: string) => name === "" || types.has(name);
  if (!names.every(({ inputs, outputs }) => [...inputs, ...outputs].every(known))) return undefined;
  const border = (name: string): TensorSpec => ({ name, ...types.get(name) ?? NOTHING });
  const parts = groups.map((nodes, i): Part<Call> => {
    const call = calls.get(nodes[0]!);
    const borders = {
      inputs: names[i]!.inputs.map(border),
      outputs: names[i]!.outputs.map(border),
    };
    return { ...borders, ...call ? { call } : { model: partModel(model, nodes, borders) } };
  });
  const read = namesRead([...calls.keys()]);
  return {
    parts,
    constants: new Map(
      [...constants].flatMap(([name, bytes]) => bytes && read.has(name) ? [[name, bytes]] : []),
    ),
    ...layoutValues(lifetimesOf(parts, results)),
  };
}

/** The type of an absent input or output. */
const NOTHING = { dtype: "f32", shape: [0] } as const;

const namesRead = (nodes: readonly NodeProto[]) => new Set(nodes.flatMap(({ input }) => input));

/** Returns the values that some nodes read but do not compute, and their results in `wanted`. */
function borderNames(
  nodes: readonly NodeProto[],
  wanted: ReadonlySet<string>,
  constants: ReadonlyMap<string, unknown>,
): { inputs: string[]; outputs: string[] } {
  const made = new Set(nodes.flatMap(({ output }) => output).filter((name) => name !== ""));
  return {
    inputs: [...namesRead(nodes)].filter((name) =>
      name !== "" && !made.has(name) && !constants.has(name)
    ),
    outputs: [...made].filter((name) => wanted.has(name)),
  };
}

const nameOf = ({ name }: TensorSpec) => name;

/** Groups nodes into parts; each call is a separate part. */
function groupNodes(
  nodes: readonly NodeProto[],
  given: readonly string[],
  calls: ReadonlyMap<NodeProto, PartCall>,
): NodeProto[][] {
  const known = new Set(["", ...given]), groups: NodeProto[][] = [];
  const take = (isOwn: boolean, rest: readonly NodeProto[]) =>
    Map.groupBy(rest, (node) => {
      const isReady = calls.has(node) === isOwn && node.input.every((name) => known.has(name));
      if (isReady) { for (const name of node.output) known.add(name); }
      return isReady;
    });
  for (let rest = nodes; rest.length > 0;) {
    const before = rest.length;
    for (const isOwn of [false, true]) {
      const taken = take(isOwn, rest), ready = taken.get(true) ?? [];
      rest = taken.get(false) ?? [];
      if (isOwn) groups.push(...ready.map((node) => [node]));
      else if (ready.length > 0) groups.push(ready);
    }
    if (rest.length === before) throw new Error("Cannot cut the model: its nodes must be in order");
  }
  return groups;
}

/** Encodes the model of some nodes. */
function partModel(
  model: ModelProto,
  nodes: NodeProto[],
  { inputs, outputs }: Pick<Part<PartCall>, "inputs" | "outputs">,
): Uint8Array {
  const read = namesRead(nodes);
  const graph = create(GraphProtoSchema, {
    name: model.graph!.name!,
    initializer: model.graph!.initializer.filter(({ name }) => read.has(name!)),
    input: inputs.map(encodeValueInfo),
    output: outputs.map(encodeValueInfo),
  });
  return toBinary(ModelProtoSchema, { ...model, graph: { ...graph, node: nodes } });
}

/** Returns the name of a part's working memory, among those of values. */
export const workOf = ({ outputs }: Part<PartCall>): string => `work of ${outputs[0]!.name}`;

/** Returns the lifetimes of values between parts. */
function lifetimesOf(
  parts: readonly Part<PartCall>[],
  results: ReadonlySet<string>,
): Lifetime[] {
  const lifetimes = new Map<string, Lifetime>();
  for (const [at, part] of parts.entries()) {
    const { inputs, outputs } = part, call = "call" in part ? part.call : {};
    const { workBytes: byteLength, outputBytes } = call;
    if (byteLength) {
      lifetimes.set(workOf(part), { name: workOf(part), byteLength, from: at, to: at });
    }
    for (const { name } of inputs) {
      const lifetime = lifetimes.get(name);
      if (lifetime) lifetime.to = at;
    }
    for (const { name, dtype, shape } of outputs) {
      const byteLength = outputBytes ?? elementCount(shape) * DTYPE_BYTES[dtype];
      if (name !== "" && !results.has(name)) {
        lifetimes.set(name, { name, byteLength, from: at, to: at });
      }
    }
  }
  return [...lifetimes.values()];
}

/** An input or output of a part, and its address. */
export interface Placed extends TensorSpec {
  readonly address: number;
}

/** Inputs or outputs of a part. */
export type Places = readonly Placed[];

/** Binds a session, or a call, to memory. */
export type Bind<Of> = (of: Of, inputs: Places, outputs: Places) => BoundProgram;

/** The parts of a device that models in parts use. */
export interface PartEngine<Block, Session, Call> {
  /** Allocates memory. */
  readonly allocate: (byteLength: number) => Block;
  readonly free: (block: Block) => void;
  readonly addressOf: (block: Block) => number;
  /** Returns the bytes of memory; the array must be used immediately. */
  readonly bytesAt: (address: number, byteLength: number) => Uint8Array;
  readonly createSession: (model: Uint8Array) => Promise<Session>;
  readonly releaseSession: (session: Session) => void;
  readonly bindSession: Bind<Session>;
  readonly bindCall: (call: Call, inputs: Places, outputs: Places, work: number) => BoundProgram;
}

/** Memory of a model's intermediate values. */
export interface IntermediateBytes {
  /** Peak within one session of ONNX Runtime. */
  readonly library: number;
  /** Values between parts, in memory of the device. */
  readonly shared: number;
}

/** Returns the memory of a model in parts. */
export const intermediateOf = ({ parts, sharedBytes }: CutModel<PartCall>): IntermediateBytes => ({
  library: Math.max(0, ...parts.map((part) => "model" in part ? scratchBytes(part.model) : 0)),
  shared: sharedBytes,
});

/** Returns a binding with its address. */
export const placed =
  <Block>({ addressOf }: Pick<PartEngine<Block, never, never>, "addressOf">) =>
  (binding: Binding<Block>): Placed & Binding<Block> => ({
    ...binding,
    address: addressOf(binding.block) + binding.byteOffset,
  });

/** Opens memory that all programs of a device share for values between parts, as large as the largest needs. */
export function openShared<Block>(
  engine: Pick<PartEngine<Block, never, never>, "allocate" | "free" | "addressOf">,
) {
  let block: Block | undefined, byteLength = 0, wanted = 0;
  let last: Promise<void> = Promise.resolve();
  const free = () => {
    if (block !== undefined) engine.free(block);
    block = undefined;
    byteLength = 0;
  };
  return {
    free,
    /** Address; it changes when the memory grows. */
    get start() {
      return block === undefined ? 0 : engine.addressOf(block);
    },
    /** Makes it at least this long, before the next run. */
    reserve: (least: number) => void (wanted = Math.max(wanted, least)),
    /** Runs an action after all earlier ones: the memory belongs to one run at a time. */
    async use(action: () => Promise<void>) {
      const mine = last.then(() => {
        if (wanted > byteLength) {
          free();
          block = engine.allocate(wanted);
          byteLength = wanted;
        }
        return action();
      });
      last = mine.catch(() => {});
      await mine;
    },
  };
}

/** Compiles a model as one session. */
export async function compileWhole<Block, Session>(
  engine: PartEngine<Block, Session, never>,
  model: Uint8Array,
): Promise<Program<Block>> {
  const session = await engine.createSession(model), place = placed(engine);
  return {
    bind: (inputs, outputs) => engine.bindSession(session, inputs.map(place), outputs.map(place)),
    release: () => engine.releaseSession(session),
  };
}

/** Creates the sessions and the constants of a model in parts. */
async function openParts<Block, Session, Call extends PartCall>(
  engine: PartEngine<Block, Session, Call>,
  cut: CutModel<Call>,
) {
  const sessions = new Map<Part<Call>, Session>(), constants = new Map<string, Block>();
  const release = () => {
    sessions.forEach(engine.releaseSession);
    constants.forEach(engine.free);
  };
  try {
    for (const part of cut.parts) {
      if ("model" in part) sessions.set(part, await engine.createSession(part.model));
    }
    for (const [name, bytes] of cut.constants) {
      const block = engine.allocate(bytes.byteLength);
      constants.set(name, block);
      engine.bytesAt(engine.addressOf(block), bytes.byteLength).set(bytes);
    }
  } catch (error) {
    release();
    throw error;
  }
  return { sessions, constants, release };
}

/** Compiles a model in parts. */
export async function compileParts<Block, Session, Call extends PartCall>(
  engine: PartEngine<Block, Session, Call>,
  shared: ReturnType<typeof openShared<Block>>,
  cut: CutModel<Call>,
): Promise<Program<Block>> {
  const { sessions, constants, release } = await openParts(engine, cut), place = placed(engine);
  shared.reserve(cut.sharedBytes);
  const bind = (inputs: Bindings<Block>, outputs: Bindings<Block>): BoundProgram => {
    const apart = new Map(
      outputs.filter((output) =>
        inputs.some((input) => isReadAfter(cut, place(input), place(output)))
      ).map((output) => [output, engine.allocate(output.byteLength)] as const),
    );
    const addressOf = (name: string) => {
      const output = outputs.find((one) => one.name === name), other = output && apart.get(output);
      if (other !== undefined) return engine.addressOf(other);
      const bound = output ?? inputs.find((one) => one.name === name);
      if (bound) return place(bound).address;
      const constant = constants.get(name), offset = cut.offsets.get(name);
      if (constant !== undefined) return engine.addressOf(constant);
      return offset === undefined ? 0 : shared.start + offset;
    };
    const at = (border: TensorSpec): Placed => ({ ...border, address: addressOf(border.name) });
    const bindPart = (part: Part<Call>): BoundProgram => {
      const read = part.inputs.map(at), written = part.outputs.map(at);
      return "call" in part
        ? engine.bindCall(part.call, read, written, addressOf(workOf(part)))
        : engine.bindSession(sessions.get(part)!, read, written);
    };
    let bound: readonly BoundProgram[] = [], start: number | undefined;
    const releaseParts = () => bound.forEach((part) => part.release());
    return {
      ownBytes: [...apart.keys()].reduce((sum, { byteLength }) => sum + byteLength, 0),
      run: () =>
        shared.use(async () => {
          if (start !== shared.start) {
            releaseParts();
            start = shared.start;
            bound = cut.parts.map(bindPart);
          }
          for (const part of bound) await part.run();
          for (const [output, block] of apart) {
            const { byteLength } = output, bytes = engine.bytesAt;
            bytes(place(output).address, byteLength).set(
              bytes(engine.addressOf(block), byteLength),
            );
          }
        }),
      release() {
        releaseParts();
        apart.forEach(engine.free);
      },
    };
  };
  return { bind, release };
}

/** Returns whether an output overlaps an input that a part after the output's maker reads. */
function isReadAfter(
  { parts }: CutModel<PartCall>,
  input: Placed & Binding<unknown>,
  output: Placed & Binding<unknown>,
): boolean {
  const distance = output.address - input.address;
  if (distance >= input.byteLength || -distance >= output.byteLength) return false;
  const has = (borders: readonly TensorSpec[], { name }: TensorSpec) =>
    borders.some((border) => border.name === name);
  return parts.findLastIndex((part) => has(part.inputs, input)) >
    parts.findIndex((part) => has(part.outputs, output));
}
