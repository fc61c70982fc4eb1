/**
 * The arena: where ONNX Runtime keeps what a model computes in between, one for a process.
 *
 * [Note: one arena] Left to itself every session has an arena of its own, which keeps the most that
 * the session ever used: a stage of a dozen models holds a dozen times what is in use. So all sessions
 * of a process, whichever isolate compiled them, take from one arena that is registered with the
 * environment. It grows by what is asked for and no more, and values are taken one by one, not as one
 * block for a whole model (a "memory pattern"), for which no hole that another model left is large
 * enough: at GPT-2's vocabulary 217 MiB in place of 625, of which 196 are in use at a time. That costs
 * no time that can be measured.
 *
 * Registering a second one would take the place of the first, in a list that other threads read
 * without a lock while they compile. So whoever opens the device looks first, which only a session
 * can; the limit tells this arena from that of a session.
 *
 * @module
 */

import { Graph } from "../../graph/graph.ts";
import { encodeModel } from "../../onnx/encode_model.ts";
import {
  cString,
  type FunctionTable,
  type Handle,
  pointers,
} from "../onnx_runtime/function_table.ts";
import { created, SLOT } from "../onnx_runtime/ort_library.ts";
import type { OrtMemory, OrtTensors } from "./ort_memory.ts";

/** More bytes than any machine has: it limits nothing and is a mark. */
const LIMIT_BYTES = 2n ** 62n;

/** Its settings, as ONNX Runtime names them. */
const SETTINGS: Readonly<Record<string, bigint>> = {
  max_mem: LIMIT_BYTES,
  arena_extend_strategy: 1n, // by as much as is asked for
};

/** The settings of sessions that take from it. */
export const SHARES_ARENA: Readonly<Record<string, string>> = { "session.use_env_allocators": "1" };

/** What a run is told so that the arena gives back to the system what is not in use. */
const SHRINKS: readonly [key: string, value: string] = [
  "memory.enable_memory_arena_shrinkage",
  "cpu:0",
];

const ONNX_FLOAT = 1;

/** The arena of this process, as one device sees it. */
export interface Arena {
  /** Bytes that it holds now, in use or not, for all isolates of the process. */
  heldBytes(): number;
  /** Gives back to the system what is not in use, and leaves the arena to the others. */
  leave(): void;
}

/** What the arena is reached with. */
export interface ArenaOptions {
  readonly api: FunctionTable;
  readonly env: Handle;
  readonly memory: OrtMemory;
  readonly tensors: OrtTensors;
  /** Compiles a model, on this thread. */
  readonly createSession: (model: Uint8Array<ArrayBuffer>) => Handle;
}

/** Joins the arena of this process; makes it where there is none. No other isolate may do so meanwhile. */
export function joinArena(options: ArenaOptions): Arena {
  const member = openMember(options);
  if (member.stat("Limit") === `${LIMIT_BYTES}`) return member.arena;
  member.arena.leave();
  register(options);
  return openMember(options).arena;
}

function register({ api, env, tensors }: ArenaOptions): void {
  const names = Object.keys(SETTINGS).map(cString);
  const values = new Uint8Array(BigUint64Array.from(Object.values(SETTINGS)).buffer);
  const settings = created((out) =>
    api.sync(SLOT.createArenaCfg, ["buffer", "buffer", "usize", "buffer"])(
      pointers(names),
      values,
      BigInt(names.length),
      out,
    )
  );
  try {
    api.sync(SLOT.createAndRegisterAllocator, ["pointer", "pointer", "pointer"])(
      env,
      tensors.memoryInfo,
      settings,
    );
  } finally {
    api.release(SLOT.releaseArenaCfg)(settings);
  }
}

/** A session of its own, which sees the arena that sessions take from, and can have it shrink. */
function openMember(options: ArenaOptions) {
  const { api, createSession, tensors, memory } = options;
  const session = createSession(smallestModel());
  const allocator = created((out) =>
    api.sync(SLOT.createAllocator, ["pointer", "pointer", "buffer"])(
      session,
      tensors.memoryInfo,
      out,
    )
  );
  const stat = (name: string) => {
    const stats = created((out) =>
      api.sync(SLOT.allocatorGetStats, ["pointer", "buffer"])(allocator, out)
    );
    try {
      return api.text(SLOT.getKeyValue, ["pointer", "buffer"])(stats, cString(name));
    } finally {
      api.release(SLOT.releaseKeyValuePairs)(stats);
    }
  };
  const arena: Arena = {
    heldBytes: () => Number(stat("TotalAllocated")),
    leave() {
      shrink(api, session, memory, tensors);
      api.release(SLOT.releaseAllocator)(allocator);
      api.release(SLOT.releaseSession)(session);
    },
  };
  return { arena, stat };
}

/** The sign of one number. */
function smallestModel(): Uint8Array<ArrayBuffer> {
  const g = new Graph(), x = g.input("x", [1]);
  const model = encodeModel(g, [{ name: "x", value: x }], [{ name: "y", value: g.neg(x) }]);
  return new Uint8Array(model);
}

/** Runs the smallest model, in place, and shrinks the arena at the end of the run. */
function shrink(api: FunctionTable, session: Handle, memory: OrtMemory, tensors: OrtTensors): void {
  const run = api.sync(
    SLOT.run,
    ["pointer", "pointer", "buffer", "buffer", "usize", "buffer", "usize", "buffer"],
  );
  const options = created((out) => api.sync(SLOT.createRunOptions, ["buffer"])(out));
  const [key, value] = SHRINKS.map(cString) as [Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>];
  api.sync(SLOT.addRunConfigEntry, ["pointer", "buffer", "buffer"])(options, key, value);
  const number = memory.allocate(Float32Array.BYTES_PER_ELEMENT);
  const tensor = tensors.create(number.address, number.bytes.byteLength, [1], ONNX_FLOAT);
  const x = cString("x"), y = cString("y"), tensorTable = pointers([tensor]);
  try {
    run(session, options, pointers([x]), tensorTable, 1n, pointers([y]), 1n, tensorTable);
  } finally {
    tensors.release(tensor);
    memory.free(number);
    api.release(SLOT.releaseRunOptions)(options);
  }
}
