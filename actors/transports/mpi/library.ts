/**
 * MPI through the foreign function interface: the functions that the communication worker of a
 * process uses.
 *
 * [Note: MPI_Finalize may not return] MPICH over TCP closes its connections in `MPI_Finalize`. Each
 * close needs one more reply from the peer. Then the rank waits until all ranks have reached the
 * same point, and no longer replies to its peers. So a peer that is slightly later waits for a
 * reply forever (MPICH 4.0 with UCX 1.13: one job in three of four ranks on two hosts). All data
 * has been exchanged by then. A rank that still waits for a reply, which uses a full core, sends
 * the launcher the messages that `MPI_Finalize` would send; the other ranks, which sleep until all
 * ranks have sent them, then finish.
 *
 * @module
 */

import process from "node:process";
import { resultOr } from "../../runtime/types.ts";

/** An error that every rank throws, so only one rank prints it. */
export class JobRefusal extends RangeError {
  override readonly name = "JobRefusal";
}

/** Library names in the runtime packages of Linux. */
export const LIBRARIES = { mpich: "libmpich.so.12", openmpi: "libmpi.so.40" } as const;

/** Debian packages of the libraries. */
const PACKAGES = { mpich: "libmpich12", openmpi: "libopenmpi3" } as const;

/** Display names of the MPI implementations. */
const NAMES = { mpich: "MPICH", openmpi: "Open MPI" } as const;

/** An MPI implementation. */
type AbiName = keyof typeof LIBRARIES;

/** Foreign types of handles. */
export const HANDLE_TYPES = { mpich: "i32", openmpi: "pointer" } as const;

/** A handle of MPI. */
type MpiHandle = number | Deno.PointerValue;

/** Bytes of a handle, including requests. */
const HANDLE_BYTES = { mpich: 4, openmpi: 8 } as const;

/** Color of a rank that gets no communicator, `MPI_UNDEFINED` in both implementations. */
const NO_COLOR = -32766;

/**
 * Handles and constants of an MPI implementation. `inPlace` is the send buffer of an in-place
 * reduction, `MPI_IN_PLACE`.
 */
type Handles =
  & Readonly<Record<keyof typeof OPEN_MPI_NUMBERS, MpiHandle>>
  & Readonly<Record<"ignoredStatus" | "inPlace", Deno.PointerValue>>;

/** Handles of MPICH, from its header. */
export const MPICH_HANDLES: Handles = {
  world: 0x44000000,
  bytes: 0x4c00010d,
  floats: 0x4c00040a,
  sum: 0x58000003,
  errorsReturn: 0x54000001,
  // Created on access, because pointers require the permission to call libraries.
  get ignoredStatus() {
    return Deno.UnsafePointer.create(1n);
  },
  get inPlace() {
    return Deno.UnsafePointer.create(0xffff_ffff_ffff_ffffn);
  },
};

/** Fortran handles of Open MPI, and the functions that convert them. */
const OPEN_MPI_NUMBERS = {
  world: ["MPI_Comm_f2c", 0],
  bytes: ["MPI_Type_f2c", 1],
  floats: ["MPI_Type_f2c", 13],
  sum: ["MPI_Op_f2c", 3],
  errorsReturn: ["MPI_Errhandler_f2c", 1],
} as const;

/**
 * Variables that launchers set, by MPI implementation: first each `mpirun`, then `srun`, with which
 * Open MPI uses PMIx and MPICH uses PMI-2. Processes of `mpirun` in a Slurm job also see the
 * variables of Slurm, so those are last.
 */
const LAUNCHERS = [
  { abi: "openmpi", rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE" },
  { abi: "mpich", rank: "PMI_RANK", size: "PMI_SIZE" },
  { abi: "openmpi", rank: "PMIX_RANK", size: "SLURM_STEP_NUM_TASKS" },
  { abi: "mpich", rank: "SLURM_PROCID", size: "SLURM_STEP_NUM_TASKS" },
] as const;

/** Variable that Open MPI sets when it binds each process to separate cores. */
const IS_BOUND = "OMPI_MCA_orte_bound_at_launch";

/** Variables with the number of processes on a host; Slurm's lists all hosts, such as `2(x3),1`. */
const HOST_SIZES = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"];

/** Reads a variable; undefined without the permission, because ranks have all permissions. */
function variable(name: string): string | undefined {
  const { state } = Deno.permissions.querySync({ name: "env", variable: name });
  return state === "granted" ? Deno.env.get(name) : undefined;
}

/**
 * Returns the place of this process in its job, and the number of ranks that share its cores, if
 * known; undefined when no launcher started it.
 */
export function launchedRanks(env = variable) {
  const found = LAUNCHERS.find(({ rank, size }) =>
    env(rank) !== undefined && env(size) !== undefined
  );
  if (!found) return undefined;
  const hostSize = parseInt(HOST_SIZES.map(env).find((size) => size !== undefined) ?? "");
  const sharing = env(IS_BOUND) === "1" ? 1 : hostSize;
  return {
    abi: found.abi,
    rank: Number(env(found.rank)),
    size: Number(env(found.size)),
    ...sharing > 0 && { sharing },
  };
}

/** Variables with the number of a process on its host. */
const LOCAL_RANKS = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

/** Returns whether this process is the first of its host, which reports the host's problems. */
export function isFirstOfHost(env = variable): boolean {
  return Number(LOCAL_RANKS.map(env).find((local) => local !== undefined) ?? 0) === 0;
}

/** Maximum bytes of a text from MPI. */
const TEXT_BYTES = 8192;

/** The signature of a function that returns a status. */
const takes = (...parameters: Deno.NativeType[]) => ({ parameters, result: "i32" as const });

/** Returns the signatures of the functions for a type of handles. */
const symbolsOf = (handle: "i32" | "pointer") => ({
  MPI_Get_library_version: takes("buffer", "buffer"),
  MPI_Init_thread: takes("pointer", "pointer", "i32", "buffer"),
  MPI_Comm_set_errhandler: takes(handle, handle),
  MPI_Comm_rank: takes(handle, "buffer"),
  MPI_Comm_size: takes(handle, "buffer"),
  MPI_Isend: takes("buffer", "i32", handle, "i32", "i32", handle, "buffer"),
  MPI_Irecv: takes("buffer", "i32", handle, "i32", "i32", handle, "buffer"),
  MPI_Iprobe: takes("i32", "i32", handle, "buffer", "pointer"),
  MPI_Test: takes("buffer", "buffer", "pointer"),
  MPI_Allgather: takes("buffer", "i32", handle, "buffer", "i32", handle, handle),
  MPI_Comm_split: takes(handle, "i32", "i32", "buffer"),
  MPI_Comm_free: takes("buffer"),
  MPI_Ibarrier: takes(handle, "buffer"),
  MPI_Iallreduce: takes("pointer", "buffer", "i32", handle, handle, handle, "buffer"),
  MPI_Error_string: takes("i32", "buffer", "buffer"),
  MPI_Finalize: takes(),
});

/** The functions of MPI, independent of the type of handles. */
type Functions = Readonly<
  Record<keyof ReturnType<typeof symbolsOf>, (...args: unknown[]) => number>
>;

/** Loads the functions of a library. @throws {Error} when it is missing or lacks a function. */
export function loadMpi(library: string, abi: AbiName): Functions {
  if (abi === "openmpi") loadGlobally(library);
  try {
    return Deno.dlopen(library, symbolsOf(HANDLE_TYPES[abi])).symbols as unknown as Functions;
  } catch (error) {
    if (error instanceof Deno.errors.NotCapable) throw error;
    const { message } = error as Error, isLoaded = message.startsWith("Failed to register symbol");
    const must = `the launcher is ${NAMES[abi]}, whose library must be there`;
    const problem = isLoaded
      ? "has not all functions of MPI"
      : `does not load (${message.replaceAll("Could not open library: ", "")})`;
    const remedy = `on Debian, apt-get install ${
      PACKAGES[abi]
    }, or name another with --mpi-library`;
    const cannot = `Cannot use MPI on ${Deno.hostname()}`;
    throw new Error(`${cannot}: ${must}, received ${library}, which ${problem}; ${remedy}`);
  }
}

/** Loads a library with global symbols: plugins of Open MPI look up its symbols in the process. */
function loadGlobally(library: string): void {
  const NOW_AND_GLOBAL = 0x102;
  const libc = Deno.dlopen("libc.so.6", {
    dlopen: { parameters: ["buffer", "i32"], result: "pointer" },
  });
  libc.symbols.dlopen(cString(library), NOW_AND_GLOBAL);
  libc.close();
}

const cString = (text: string) => new TextEncoder().encode(`${text}\0`);

/** Returns the version text of a library; MPI need not be initialized. */
function versionOf(call: Functions): string {
  const text = new Uint8Array(TEXT_BYTES), length = new Int32Array(1);
  call.MPI_Get_library_version(text, new Uint8Array(length.buffer));
  const [first] = new TextDecoder().decode(text.subarray(0, length[0])).split(/[\n\0]/);
  return first!.replaceAll(/\s+/g, " ").trim();
}

/** Returns the handles of Open MPI. */
export function openMpiHandles(library: string): Handles {
  const parameters = ["i32"] as const, result = "pointer" as const;
  const { symbols } = Deno.dlopen(library, {
    MPI_Comm_f2c: { parameters, result },
    MPI_Type_f2c: { parameters, result },
    MPI_Op_f2c: { parameters, result },
    MPI_Errhandler_f2c: { parameters, result },
  });
  const handles = Object.entries(OPEN_MPI_NUMBERS)
    .map(([name, [convert, number]]) => [name, symbols[convert](number)]);
  const addresses = { ignoredStatus: null, inPlace: Deno.UnsafePointer.create(1n) };
  return { ...Object.fromEntries(handles), ...addresses };
}

/**
 * Milliseconds between two checks whether `MPI_Finalize` is spinning, and the CPU time in between,
 * in microseconds, that shows it; the limit is low because a spinning thread gets little time on a
 * busy machine.
 */
const LOOK_MS = 500;
const AT_WORK_US = 25_000;

/**
 * Milliseconds between two checks for the launcher's reply, and the maximum number of checks: there
 * is no reply if the other ranks have already ended.
 */
const HEAR_MS = 20;
const MAX_LOOKS = 150;

/**
 * Messages of `MPI_Finalize` to the launcher in the PMI 1 protocol: this rank has reached the
 * barrier; and, after the launcher has replied that all ranks have, this rank ends.
 */
const COME_AS_FAR = new TextEncoder().encode("cmd=barrier_in\n");
const AT_AN_END = new TextEncoder().encode("cmd=finalize\n");

/** Constants of `recv` (do not wait) and `socketpair`. */
const DO_NOT_WAIT = 0x40, UNIX = 1, STREAM = 1;

const SYMBOLS = {
  send: { parameters: ["i32", "buffer", "usize", "i32"], result: "isize" },
  recv: { parameters: ["i32", "buffer", "usize", "i32"], result: "isize" },
  socketpair: { parameters: ["i32", "i32", "i32", "buffer"], result: "i32" },
  dup2: { parameters: ["i32", "i32"], result: "i32" },
} as const;

/**
 * Leaves the job in place of an `MPI_Finalize` that has just started in another thread, and then
 * calls `left`. Does nothing when `MPI_Finalize` returns by itself or the launcher uses another
 * protocol.
 *
 * @returns a function to call when `MPI_Finalize` has returned.
 */
export function watchFinalize(left: () => void): () => void {
  const socket = Number(Deno.env.get("PMI_FD") ?? NaN);
  if (Number.isNaN(socket)) return () => {};
  let before: NodeJS.CpuUsage | undefined;
  const look = () => {
    const { user, system } = process.cpuUsage(before), isFirst = before === undefined;
    before = process.cpuUsage();
    if (isFirst || user + system < AT_WORK_US) return;
    clearInterval(timer);
    const { symbols: { send, recv, socketpair, dup2 } } = Deno.dlopen("libc.so.6", SYMBOLS);
    const say = (words: Uint8Array<ArrayBuffer>) => send(socket, words, BigInt(words.length), 0);
    say(COME_AS_FAR);
    const answer = new Uint8Array(1024);
    let looks = 0;
    timer = setInterval(() => {
      const count = recv(socket, answer, BigInt(answer.length), DO_NOT_WAIT);
      if (count <= 0 && ++looks < MAX_LOOKS) return;
      say(AT_AN_END);
      // Later messages of MPI_Finalize go to a socket that is never read.
      const pair = new Int32Array(2);
      socketpair(UNIX, STREAM, 0, new Uint8Array(pair.buffer));
      dup2(pair[0]!, socket);
      left();
    }, HEAR_MS);
  };
  let timer = setInterval(look, LOOK_MS);
  return () => clearInterval(timer);
}

/**
 * Yields the core to other threads; returns immediately when no thread waits for it.
 *
 * [Note: polling delays others] A thread that a message wakes up is often put on the core of the
 * sender. If the sender then polls, the other thread waits until the end of the time slice: 4 ms
 * instead of 0.1 ms.
 */
export const yieldCore: () => void = resultOr(
  () => Deno.dlopen("libc.so.6", { sched_yield: { parameters: [], result: "i32" } }).symbols,
  // Without the permission, or on another system, polling does not yield.
  { sched_yield: () => {} },
).sched_yield;

/** Thread level of MPI: only the thread that initializes MPI calls it. */
const FUNNELED = 1;

/** Tag of all messages: a link keeps their order. */
const TAG = 1;

/** Tag that no message has. */
const NO_TAG = 2;

/** A pending transfer. Its bytes must not move until it is complete. */
export interface MpiRequest {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly handle: Uint8Array<ArrayBuffer>;
}

/** A subset of the ranks that communicate with each other. */
export interface Communicator {
  readonly handle: MpiHandle;
  /** Memory that contains the handle. */
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** Options of {@linkcode openMpi}. */
export interface MpiOptions {
  readonly abi: AbiName;
  /** A library name or a path. Default: the library of the runtime package. */
  readonly library?: string | undefined;
  /** Number of ranks according to the launcher. */
  readonly ranks: number;
}

/**
 * Initializes MPI; only the calling thread may use it.
 *
 * @throws {JobRefusal} when library and launcher report different numbers of ranks.
 * @throws {Error} when the library cannot be loaded, or is not the launcher's implementation.
 */
export function openMpi({ abi, library = LIBRARIES[abi], ranks }: MpiOptions): Mpi {
  const call = loadMpi(library, abi), version = versionOf(call);
  const isOpenMpi = version.startsWith("Open MPI");
  if (isOpenMpi !== (abi === "openmpi")) {
    const must = `the library must be that of the launcher, ${NAMES[abi]}`;
    throw new Error(
      `Cannot use MPI: ${must}, received ${library}, which is ${version}; start the ranks with its own launcher, or give the right library with --mpi-library`,
    );
  }
  if (call.MPI_Init_thread(null, null, FUNNELED, new Uint8Array(4)) !== 0) {
    throw new Error(`Cannot use MPI: ${library} must start, received a failure of MPI_Init_thread`);
  }
  const handles = abi === "mpich" ? MPICH_HANDLES : openMpiHandles(library);
  const mpi = new Mpi(call, version, handles, HANDLE_BYTES[abi]);
  if (mpi.size === ranks) return mpi;
  mpi.finalize();
  throw new JobRefusal(
    `Cannot use MPI: launcher and library must be of one installation, received a launcher that has started ${ranks} ranks and a library, ${library} (${mpi.version}), that knows of ${mpi.size}; name the launcher's own with --mpi-library`,
  );
}

/** Initialized MPI. Methods throw an `Error` with MPI's own message. */
export class Mpi {
  readonly rank: number;
  readonly size: number;
  readonly #done = new Int32Array(1);
  readonly #flag = new Uint8Array(this.#done.buffer);

  /** Reads rank and size of the job. */
  constructor(
    private readonly call: Functions,
    /** The version text of the library. */
    readonly version: string,
    private readonly handles: Handles,
    private readonly handleBytes: number,
  ) {
    const { world, errorsReturn } = handles, number = new Int32Array(1);
    const bytes = new Uint8Array(number.buffer);
    this.#check(call.MPI_Comm_set_errhandler(world, errorsReturn));
    this.#check(call.MPI_Comm_size(world, bytes));
    this.size = number[0]!;
    this.#check(call.MPI_Comm_rank(world, bytes));
    this.rank = number[0]!;
  }

  /** Starts to send bytes to a rank. */
  send(bytes: Uint8Array<ArrayBuffer>, to: number): MpiRequest {
    return this.#begin("MPI_Isend", bytes, to);
  }

  /** Starts to receive `into.byteLength` bytes from a rank. */
  receive(into: Uint8Array<ArrayBuffer>, from: number): MpiRequest {
    return this.#begin("MPI_Irecv", into, from);
  }

  /** Returns whether a transfer is complete; advances all transfers. */
  test({ handle }: MpiRequest): boolean {
    this.#check(this.call.MPI_Test(handle, this.#flag, this.handles.ignoredStatus));
    return this.#done[0] !== 0;
  }

  /** Advances all transfers. */
  advance(): void {
    const { world, ignoredStatus } = this.handles;
    this.#check(this.call.MPI_Iprobe(this.rank, NO_TAG, world, this.#flag, ignoredStatus));
  }

  /**
   * Returns the bytes of all ranks, concatenated; every rank calls it with the same number of
   * bytes.
   */
  gather(own: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
    const all = new Uint8Array(this.size * own.byteLength), count = own.byteLength;
    const { bytes, world } = this.handles;
    this.#check(this.call.MPI_Allgather(own, count, bytes, all, count, bytes, world));
    return all;
  }

  /** Starts a barrier, which completes when every rank has started it. */
  barrier(): MpiRequest {
    const handle = this.#newHandle();
    this.#check(this.call.MPI_Ibarrier(this.handles.world, handle));
    return { bytes: handle, handle };
  }

  /**
   * Returns a communicator of the ranks with the same color, in rank order; undefined without a
   * color. Every rank calls it.
   */
  split(color: number | undefined): Communicator | undefined {
    const bytes = this.#newHandle(), { world, errorsReturn } = this.handles;
    this.#check(this.call.MPI_Comm_split(world, color ?? NO_COLOR, this.rank, bytes));
    if (color === undefined) return undefined;
    const view = new DataView(bytes.buffer);
    const handle = bytes.length === HANDLE_BYTES.mpich
      ? view.getInt32(0, true)
      : Deno.UnsafePointer.create(view.getBigUint64(0, true));
    this.#check(this.call.MPI_Comm_set_errhandler(handle, errorsReturn));
    return { handle, bytes };
  }

  /** Frees a communicator without pending operations; all its ranks call it. */
  free({ bytes }: Communicator): void {
    this.#check(this.call.MPI_Comm_free(bytes));
  }

  /** Starts an in-place sum of values over the ranks of a communicator. */
  allReduce(values: Float32Array<ArrayBuffer>, communicator: Communicator): MpiRequest {
    const handle = this.#newHandle(), { buffer, byteOffset, byteLength, length } = values;
    const { inPlace, floats, sum } = this.handles;
    this.#check(
      this.call.MPI_Iallreduce(inPlace, values, length, floats, sum, communicator.handle, handle),
    );
    return { bytes: new Uint8Array(buffer, byteOffset, byteLength), handle };
  }

  /** Finalizes MPI; every rank calls it. */
  finalize(): void {
    this.#check(this.call.MPI_Finalize());
  }

  #newHandle(): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.handleBytes);
  }

  #begin(how: "MPI_Isend" | "MPI_Irecv", bytes: Uint8Array<ArrayBuffer>, rank: number): MpiRequest {
    const handle = this.#newHandle(), { bytes: type, world } = this.handles;
    this.#check(this.call[how](bytes, bytes.byteLength, type, rank, TAG, world, handle));
    return { bytes, handle };
  }

  /** Throws MPI's message for a failed call. */
  #check(status: number): void {
    if (status === 0) return;
    const text = new Uint8Array(TEXT_BYTES), length = new Int32Array(1);
    this.call.MPI_Error_string(status, text, new Uint8Array(length.buffer));
    throw new Error(new TextDecoder().decode(text.subarray(0, length[0])));
  }
}
