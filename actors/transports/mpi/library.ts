/**
 * MPI over foreign calls: what the communication worker of a process needs of it.
 *
 * [Note: an end that never comes] MPICH over TCP ends its connections, for which each peer has to
 * answer once more, and then waits until all ranks have come as far, deaf to its peers. So a peer that
 * is a little later waits for an answer for ever (MPICH 4.0 with UCX 1.13: one job in three of four
 * ranks on two hosts). All has been said and done then: who still waits for an answer, which takes all
 * of a core, says to the launcher in its place what `MPI_Finalize` would; the others, who sleep until
 * all have said it, come to their end.
 *
 * @module
 */

import process from "node:process";

/** Every rank throws it, so one says it. */
export class JobRefusal extends RangeError {
  override readonly name = "JobRefusal";
}

/** What a library is called by the runtime packages of Linux systems. */
export const LIBRARIES = { mpich: "libmpich.so.12", openmpi: "libmpi.so.40" } as const;

/** The packages of Debian that bring them. */
const PACKAGES = { mpich: "libmpich12", openmpi: "libopenmpi3" } as const;

/** What people call who is behind it. */
const NAMES = { mpich: "MPICH", openmpi: "Open MPI" } as const;

/** An interface. */
type AbiName = keyof typeof LIBRARIES;

/** The type of handles in foreign calls. */
export const HANDLE_TYPES = { mpich: "i32", openmpi: "pointer" } as const;

/** A handle. */
type MpiHandle = number | Deno.PointerValue;

/** Bytes of a handle, and so of a request. */
const HANDLE_BYTES = { mpich: 4, openmpi: 8 } as const;

/** The color of a rank that wants no communicator: the same in both. */
const NO_COLOR = -32766;

/** The handles that are used. */
interface Handles {
  readonly world: MpiHandle;
  readonly bytes: MpiHandle;
  readonly floats: MpiHandle;
  readonly sum: MpiHandle;
  readonly errorsReturn: MpiHandle;
  readonly ignoredStatus: Deno.PointerValue;
  /** What a rank gives where its values and the sums have one place. */
  readonly inPlace: Deno.PointerValue;
}

/** MPICH's, as its header has them. */
export const MPICH_HANDLES: Handles = {
  world: 0x44000000,
  bytes: 0x4c00010d,
  floats: 0x4c00040a,
  sum: 0x58000003,
  errorsReturn: 0x54000001,
  // Only where they are asked for: to make a pointer is for those who may call libraries.
  get ignoredStatus() {
    return Deno.UnsafePointer.create(1n);
  },
  get inPlace() {
    return Deno.UnsafePointer.create(0xffff_ffff_ffff_ffffn);
  },
};

/** Those of Open MPI that are no objects. */
const OPEN_MPI_ADDRESSES = {
  ignoredStatus: null,
  get inPlace() {
    return Deno.UnsafePointer.create(1n);
  },
} as const;

/** Open MPI's numbers of them in Fortran, and the functions that turn these into handles. */
const OPEN_MPI_NUMBERS = {
  world: ["MPI_Comm_f2c", 0],
  bytes: ["MPI_Type_f2c", 1],
  floats: ["MPI_Type_f2c", 13],
  sum: ["MPI_Op_f2c", 3],
  errorsReturn: ["MPI_Errhandler_f2c", 1],
} as const;

/**
 * What a launcher tells its processes, by the interface that it serves: mpirun of either, then srun,
 * which has Open MPI's processes find each other by PMIx and MPICH's by its own PMI-2. Variables of a
 * job of Slurm are seen by mpirun's processes in it too, so they come last.
 */
const LAUNCHERS: readonly {
  readonly abi: AbiName;
  readonly rank: string;
  readonly size: string;
}[] = [
  { abi: "openmpi", rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE" },
  { abi: "mpich", rank: "PMI_RANK", size: "PMI_SIZE" },
  { abi: "openmpi", rank: "PMIX_RANK", size: "SLURM_STEP_NUM_TASKS" },
  { abi: "mpich", rank: "SLURM_PROCID", size: "SLURM_STEP_NUM_TASKS" },
];

/** What the launcher of this process has told it. */
interface Launched {
  readonly abi: AbiName;
  readonly rank: number;
  readonly size: number;
  /** Ranks that share the cores which this one may use, where anybody says. */
  readonly sharing?: number;
}

/** What Open MPI sets where it gives each process cores of its own. */
const IS_BOUND = "OMPI_MCA_orte_bound_at_launch";

/** What launchers call the number of processes of a host; Slurm's is that of all hosts, `2(x3),1`. */
const HOST_SIZES = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"];

/** Reads a variable. A program without permission to look is no rank, as a rank may do all. */
function variable(name: string): string | undefined {
  const { state } = Deno.permissions.querySync({ name: "env", variable: name });
  return state === "granted" ? Deno.env.get(name) : undefined;
}

/** Returns the place of this process in its job; undefined where no launcher started it. */
export function launchedRanks(env = variable): Launched | undefined {
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

/** What launchers call the number of a process among those of its host. */
const LOCAL_RANKS = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

/** Whether this process is the one of its host that says what is wrong there. */
export function isFirstOfHost(env = variable): boolean {
  return Number(LOCAL_RANKS.map(env).find((local) => local !== undefined) ?? 0) === 0;
}

/** Bytes of a text that MPI writes. */
const TEXT_BYTES = 8192;

/** The functions, with the type of handles of an interface. */
function symbolsOf<H extends "i32" | "pointer">(handle: H) {
  const status = "i32" as const;
  return {
    MPI_Get_library_version: { parameters: ["buffer", "buffer"], result: status },
    MPI_Init_thread: { parameters: ["pointer", "pointer", "i32", "buffer"], result: status },
    MPI_Comm_set_errhandler: { parameters: [handle, handle], result: status },
    MPI_Comm_rank: { parameters: [handle, "buffer"], result: status },
    MPI_Comm_size: { parameters: [handle, "buffer"], result: status },
    MPI_Isend: {
      parameters: ["buffer", "i32", handle, "i32", "i32", handle, "buffer"],
      result: status,
    },
    MPI_Irecv: {
      parameters: ["buffer", "i32", handle, "i32", "i32", handle, "buffer"],
      result: status,
    },
    MPI_Iprobe: {
      parameters: ["i32", "i32", handle, "buffer", "pointer"],
      result: status,
    },
    MPI_Test: { parameters: ["buffer", "buffer", "pointer"], result: status },
    MPI_Allgather: {
      parameters: ["buffer", "i32", handle, "buffer", "i32", handle, handle],
      result: status,
    },
    MPI_Comm_split: { parameters: [handle, "i32", "i32", "buffer"], result: status },
    MPI_Comm_free: { parameters: ["buffer"], result: status },
    MPI_Ibarrier: { parameters: [handle, "buffer"], result: status },
    MPI_Iallreduce: {
      parameters: ["pointer", "buffer", "i32", handle, handle, handle, "buffer"],
      result: status,
    },
    MPI_Error_string: { parameters: ["i32", "buffer", "buffer"], result: status },
    MPI_Finalize: { parameters: [], result: status },
  } as const;
}

/** The functions as they are called here, whatever the type of handles. */
type Functions = Readonly<
  Record<keyof ReturnType<typeof symbolsOf>, (...args: unknown[]) => number>
>;

/** Loads the functions of a library. @throws {Error} when it has none, or is not there. */
export function loadMpi(library: string, abi: AbiName): Functions {
  if (abi === "openmpi") loadGlobally(library);
  try {
    return Deno.dlopen(library, symbolsOf(HANDLE_TYPES[abi])).symbols as unknown as Functions;
  } catch (error) {
    if (error instanceof Deno.errors.NotCapable) throw error;
    const { message } = error as Error, isLoaded = message.startsWith("Failed to register symbol");
    throw new Error(
      `Cannot use MPI on ${Deno.hostname()}: the launcher is ${
        NAMES[abi]
      }, whose library must be there, received ${library}, which ${
        isLoaded
          ? "has not all functions of MPI"
          : `does not load (${message.replaceAll("Could not open library: ", "")})`
      }; on Debian, apt-get install ${PACKAGES[abi]}, or name another with --mpi-library`,
    );
  }
}

/** Open MPI loads parts of itself that look for its symbols among all of the process. */
function loadGlobally(library: string): void {
  const NOW_AND_GLOBAL = 0x102;
  const libc = Deno.dlopen("libc.so.6", {
    dlopen: { parameters: ["buffer", "i32"], result: "pointer" },
  });
  libc.symbols.dlopen(cString(library), NOW_AND_GLOBAL);
  libc.close();
}

const cString = (text: string) => new TextEncoder().encode(`${text}\0`);

/** What a library calls itself; it may be asked before MPI is open. */
function versionOf(call: Functions): string {
  const text = new Uint8Array(TEXT_BYTES), length = new Int32Array(1);
  call.MPI_Get_library_version(text, new Uint8Array(length.buffer));
  const [first] = new TextDecoder().decode(text.subarray(0, length[0])).split(/[\n\0]/);
  return first!.replaceAll(/\s+/g, " ").trim();
}

/** The handles of Open MPI. */
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
  return { ...Object.fromEntries(handles), ...OPEN_MPI_ADDRESSES };
}

/** How often it looks whether a thread is at work, in milliseconds, and the CPU time between two looks
 * that says so, in microseconds: on a busy machine it gets little. */
const LOOK_MS = 500;
const AT_WORK_US = 25_000;

/** How often it looks whether the launcher has answered, in milliseconds, and how often at most: it
 * does not where the others have gone already. */
const HEAR_MS = 20;
const MAX_LOOKS = 150;

/** What MPI_Finalize says to the launcher in the words of its protocol, PMI 1: that it has come as
 * far as this, and, when the launcher has answered that all have, that it ends. */
const COME_AS_FAR = new TextEncoder().encode("cmd=barrier_in\n");
const AT_AN_END = new TextEncoder().encode("cmd=finalize\n");

/** Tells `recv` not to wait; a pair of sockets, connected to each other. */
const DO_NOT_WAIT = 0x40, UNIX = 1, STREAM = 1;

const SYMBOLS = {
  send: { parameters: ["i32", "buffer", "usize", "i32"], result: "isize" },
  recv: { parameters: ["i32", "buffer", "usize", "i32"], result: "isize" },
  socketpair: { parameters: ["i32", "i32", "i32", "buffer"], result: "i32" },
  dup2: { parameters: ["i32", "i32"], result: "i32" },
} as const;

/**
 * Calls `left` when this rank has left the job in place of `MPI_Finalize`, which has just begun in
 * another thread; never where that ends by itself, or the launcher speaks another protocol.
 *
 * @returns what to call when `MPI_Finalize` has ended.
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
      // What MPI_Finalize may say after all is said to nobody.
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
 * Lets whoever else wants this core have it, and goes on at once where nobody does.
 *
 * [Note: who polls is in the way] A thread that is woken by a message is often put on the core of
 * the one that sent it. When that one goes on to poll, the other waits until its slice of time is
 * over: 4 ms for what takes 0.1.
 */
export const yieldCore: () => void = open();

function open(): () => void {
  try {
    const { symbols } = Deno.dlopen("libc.so.6", {
      sched_yield: { parameters: [], result: "i32" },
    });
    return symbols.sched_yield;
  } catch {
    // Without the permission, or on another system, polling is less polite.
    return () => {};
  }
}

/** Only the thread that opens MPI calls it. */
const FUNNELED = 1;

/** Messages of a link are in order, so all have one tag. */
const TAG = 1;

/** What no message has. */
const NO_TAG = 2;

/** A transfer that is under way; its bytes must stay where they are until it is done. */
export interface MpiRequest {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly handle: Uint8Array<ArrayBuffer>;
}

/** Some of the ranks, among themselves. */
export interface Communicator {
  readonly handle: MpiHandle;
  /** Where MPI has written it. */
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** What can be opened: a name for the system's loader, or a path. */
export interface MpiOptions {
  readonly abi: AbiName;
  /** By default the one of the runtime packages. */
  readonly library?: string | undefined;
  /** How many ranks the launcher says that it has started. */
  readonly ranks: number;
}

/**
 * Opens MPI; the calling thread is the only one that may use it.
 *
 * @throws {JobRefusal} when the library and the launcher do not find each other.
 * @throws {Error} when the library cannot be loaded, or is not of this interface.
 */
export function openMpi({ abi, library = LIBRARIES[abi], ranks }: MpiOptions): Mpi {
  const call = loadMpi(library, abi), version = versionOf(call);
  const isOpenMpi = version.startsWith("Open MPI");
  if (isOpenMpi !== (abi === "openmpi")) {
    throw new Error(
      `Cannot use MPI: the library must be that of the launcher, ${
        NAMES[abi]
      }, received ${library}, which is ${version}; start the ranks with its own launcher, or give the right library with --mpi-library`,
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

/** MPI, opened. Methods throw an `Error` with its own text. */
export class Mpi {
  /** As the library calls itself. */
  readonly version: string;
  readonly rank: number;
  readonly size: number;
  readonly #call: Functions;
  readonly #handles: Handles;
  readonly #handleBytes: number;
  readonly #done = new Int32Array(1);
  readonly #flag = new Uint8Array(this.#done.buffer);

  /** Learns its place in the job. */
  constructor(call: Functions, version: string, handles: Handles, handleBytes: number) {
    this.#call = call;
    this.#handles = handles;
    this.#handleBytes = handleBytes;
    this.version = version;
    const { world, errorsReturn } = handles, number = new Int32Array(1);
    const bytes = new Uint8Array(number.buffer);
    this.#check(call.MPI_Comm_set_errhandler(world, errorsReturn));
    this.#check(call.MPI_Comm_size(world, bytes));
    this.size = number[0]!;
    this.#check(call.MPI_Comm_rank(world, bytes));
    this.rank = number[0]!;
  }

  /** Begins to send bytes to a rank. */
  send(bytes: Uint8Array<ArrayBuffer>, to: number): MpiRequest {
    return this.#begin("MPI_Isend", bytes, to);
  }

  /** Begins to receive as many bytes as `into` holds. */
  receive(into: Uint8Array<ArrayBuffer>, from: number): MpiRequest {
    return this.#begin("MPI_Irecv", into, from);
  }

  /** Whether a transfer is done; lets all go on. */
  test({ handle }: MpiRequest): boolean {
    this.#check(this.#call.MPI_Test(handle, this.#flag, this.#handles.ignoredStatus));
    return this.#done[0] !== 0;
  }

  /** Lets all go on. */
  advance(): void {
    const { world, ignoredStatus } = this.#handles;
    this.#check(this.#call.MPI_Iprobe(this.rank, NO_TAG, world, this.#flag, ignoredStatus));
  }

  /** The bytes of each rank, one after the other; every rank calls it with as many. */
  gather(own: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
    const all = new Uint8Array(this.size * own.byteLength), count = own.byteLength;
    const { bytes, world } = this.#handles;
    this.#check(this.#call.MPI_Allgather(own, count, bytes, all, count, bytes, world));
    return all;
  }

  /** Begins to wait until every rank has begun to. */
  barrier(): MpiRequest {
    const handle = this.#newHandle();
    this.#check(this.#call.MPI_Ibarrier(this.#handles.world, handle));
    return { bytes: handle, handle };
  }

  /** The ranks that give the same color, in their order; none for one that gives none. Every rank
   * calls it. */
  split(color: number | undefined): Communicator | undefined {
    const bytes = this.#newHandle(), { world, errorsReturn } = this.#handles;
    this.#check(this.#call.MPI_Comm_split(world, color ?? NO_COLOR, this.rank, bytes));
    if (color === undefined) return undefined;
    const view = new DataView(bytes.buffer);
    const handle = bytes.length === HANDLE_BYTES.mpich
      ? view.getInt32(0, true)
      : Deno.UnsafePointer.create(view.getBigUint64(0, true));
    this.#check(this.#call.MPI_Comm_set_errhandler(handle, errorsReturn));
    return { handle, bytes };
  }

  /** Lets go of a communicator with which nothing is under way; all its ranks call it. */
  free({ bytes }: Communicator): void {
    this.#check(this.#call.MPI_Comm_free(bytes));
  }

  /** Begins to add values to those of the other ranks of a communicator, each in place. */
  allReduce(values: Float32Array<ArrayBuffer>, communicator: Communicator): MpiRequest {
    const handle = this.#newHandle(), { buffer, byteOffset, byteLength, length } = values;
    const { inPlace, floats, sum } = this.#handles;
    this.#check(
      this.#call.MPI_Iallreduce(inPlace, values, length, floats, sum, communicator.handle, handle),
    );
    return { bytes: new Uint8Array(buffer, byteOffset, byteLength), handle };
  }

  /** Closes MPI: every rank calls it. */
  finalize(): void {
    this.#check(this.#call.MPI_Finalize());
  }

  #newHandle(): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.#handleBytes);
  }

  #begin(how: "MPI_Isend" | "MPI_Irecv", bytes: Uint8Array<ArrayBuffer>, rank: number): MpiRequest {
    const handle = this.#newHandle(), { bytes: type, world } = this.#handles;
    this.#check(this.#call[how](bytes, bytes.byteLength, type, rank, TAG, world, handle));
    return { bytes, handle };
  }

  /** Throws what MPI says of a failure. */
  #check(status: number): void {
    if (status === 0) return;
    const text = new Uint8Array(TEXT_BYTES), length = new Int32Array(1);
    this.#call.MPI_Error_string(status, text, new Uint8Array(length.buffer));
    throw new Error(new TextDecoder().decode(text.subarray(0, length[0])));
  }
}
