/**
 * Runs models in parts: sessions of ONNX Runtime, and calls of other kernels between.
 *
 * @module
 */

import { scratchBytes } from "../../onnx/scratch.ts";
import type { ModelPort } from "../../onnx/signature.ts";
import type { Binding, BoundProgram, Program } from "../engine.ts";
import { type CutModel, type Part, type PartCall, workOf } from "./cut_model.ts";

/** An input or output of a part, and its address. */
export interface Placed extends ModelPort {
  readonly address: number;
}

/** The parts of a device that models in parts use. */
export interface PartEngine<Block, Session, Call> {
  /** Allocates memory. */
  readonly allocate: (byteLength: number) => Block;
  readonly free: (block: Block) => void;
  readonly addressOf: (block: Block) => number;
  /** Returns the bytes of memory; the array is used at once. */
  readonly bytesAt: (address: number, byteLength: number) => Uint8Array;
  readonly createSession: (model: Uint8Array) => Promise<Session>;
  readonly releaseSession: (session: Session) => void;
  readonly bindSession: (
    session: Session,
    inputs: readonly Placed[],
    outputs: readonly Placed[],
  ) => BoundProgram;
  readonly bindCall: (
    call: Call,
    inputs: readonly Placed[],
    outputs: readonly Placed[],
    work: number,
  ) => BoundProgram;
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
  library: parts.reduce(
    (most, part) => Math.max(most, "model" in part ? scratchBytes(part.model) : 0),
    0,
  ),
  shared: sharedBytes,
});

/** Returns a binding with its address. */
export const placed =
  <Block>({ addressOf }: Pick<PartEngine<Block, never, never>, "addressOf">) =>
  (binding: Binding<Block>): Placed => ({
    ...binding,
    address: addressOf(binding.block) + binding.byteOffset,
  });

/** Memory that all programs of a device share for values between parts, as large as the largest needs. */
export class SharedMemory<Block> {
  #block: Block | undefined;
  #byteLength = 0;
  #wanted = 0;
  #last: Promise<void> = Promise.resolve();

  constructor(
    private readonly engine: Pick<
      PartEngine<Block, never, never>,
      "allocate" | "free" | "addressOf"
    >,
  ) {}

  /** Address; it changes when the memory grows. */
  get start(): number {
    return this.#block === undefined ? 0 : this.engine.addressOf(this.#block);
  }

  /** Makes it at least this long, before the next run. */
  reserve(byteLength: number): void {
    this.#wanted = Math.max(this.#wanted, byteLength);
  }

  /** Runs an action after all earlier ones: the memory belongs to one run at a time. */
  async use(action: () => Promise<void>): Promise<void> {
    const mine = this.#last.then(() => {
      this.#grow();
      return action();
    });
    this.#last = mine.catch(() => {});
    await mine;
  }

  #grow(): void {
    if (this.#wanted <= this.#byteLength) return;
    this.free();
    this.#block = this.engine.allocate(this.#wanted);
    this.#byteLength = this.#wanted;
  }

  free(): void {
    if (this.#block !== undefined) this.engine.free(this.#block);
    this.#block = undefined;
    this.#byteLength = 0;
  }
}

/** A model in parts, compiled. */
interface CompiledParts<Block, Session, Call extends PartCall> {
  readonly cut: CutModel<Call>;
  readonly sessions: ReadonlyMap<Part<Call>, Session>;
  readonly constants: ReadonlyMap<string, Block>;
}

/** Compiles a model in parts. */
export async function compileParts<Block, Session, Call extends PartCall>(
  engine: PartEngine<Block, Session, Call>,
  shared: SharedMemory<Block>,
  cut: CutModel<Call>,
): Promise<Program<Block>> {
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
    shared.reserve(cut.sharedBytes);
  } catch (error) {
    release();
    throw error;
  }
  const compiled = { cut, sessions, constants };
  return {
    bind: (inputs, outputs) => bindParts(engine, shared, compiled, inputs, outputs),
    release,
  };
}

function bindParts<Block, Session, Call extends PartCall>(
  engine: PartEngine<Block, Session, Call>,
  shared: SharedMemory<Block>,
  { cut, sessions, constants }: CompiledParts<Block, Session, Call>,
  inputs: readonly Binding<Block>[],
  outputs: readonly Binding<Block>[],
): BoundProgram {
  const place = placed(engine);
  const apart = new Map(
    outputs.filter((output) =>
      inputs.some((input) => isReadAfter(cut, place(input), place(output), input, output))
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
  const at = (border: ModelPort): Placed => ({ ...border, address: addressOf(border.name) });
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
          bytes(place(output).address, byteLength).set(bytes(engine.addressOf(block), byteLength));
        }
      }),
    release() {
      releaseParts();
      apart.forEach(engine.free);
    },
  };
}

/** Returns whether an output overlaps an input that a part after the output's maker reads. */
function isReadAfter(
  { parts }: CutModel<PartCall>,
  input: Placed,
  output: Placed,
  { byteLength: read }: { readonly byteLength: number },
  { byteLength: written }: { readonly byteLength: number },
): boolean {
  const distance = output.address - input.address;
  if (distance >= read || -distance >= written) return false;
  const has = (borders: readonly ModelPort[], { name }: ModelPort) =>
    borders.some((border) => border.name === name);
  return parts.findLastIndex((part) => has(part.inputs, input)) >
    parts.findIndex((part) => has(part.outputs, output));
}
