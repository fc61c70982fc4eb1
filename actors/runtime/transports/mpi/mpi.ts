/**
 * MPI over foreign calls: what the communication worker of a process needs of it.
 *
 * @module
 */

import {
  type AbiName,
  HANDLE_BYTES,
  type Handles,
  LIBRARIES,
  MPICH_HANDLES,
  type MpiHandle,
  NAMES,
  NO_COLOR,
} from "./mpi_abi.ts";
import { JobRefusal } from "./job_refusal.ts";
import { loadMpi, openMpiHandles, versionOf } from "./library/load_mpi.ts";
import { type Functions, TEXT_BYTES } from "./library/mpi_functions.ts";

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

/** MPI, opened. Methods throw an `Error` with its own text. */
export interface Mpi {
  /** As the library calls itself. */
  readonly version: string;
  readonly rank: number;
  readonly size: number;
  /** Begins to send bytes to a rank. */
  send(bytes: Uint8Array<ArrayBuffer>, to: number): MpiRequest;
  /** Begins to receive as many bytes as `into` holds. */
  receive(into: Uint8Array<ArrayBuffer>, from: number): MpiRequest;
  /** Whether a transfer is done; lets all go on. */
  test(request: MpiRequest): boolean;
  /** Lets all go on. */
  advance(): void;
  /** The bytes of each rank, one after the other; every rank calls it with as many. */
  gather(own: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer>;
  /** Begins to wait until every rank has begun to. */
  barrier(): MpiRequest;
  /** The ranks that give the same color, in their order; none for one that gives none. Every rank
   * calls it. */
  split(color: number | undefined): Communicator | undefined;
  /** Lets go of a communicator with which nothing is under way; all its ranks call it. */
  free(communicator: Communicator): void;
  /** Begins to add values to those of the other ranks of a communicator, each in place. */
  allReduce(values: Float32Array<ArrayBuffer>, communicator: Communicator): MpiRequest;
  /** Closes MPI: every rank calls it. */
  finalize(): void;
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
  const mpi = start(call, version, abi === "mpich" ? MPICH_HANDLES : openMpiHandles(library), abi);
  if (mpi.size === ranks) return mpi;
  mpi.finalize();
  throw new JobRefusal(
    `Cannot use MPI: launcher and library must be of one installation, received a launcher that has started ${ranks} ranks and a library, ${library} (${mpi.version}), that knows of ${mpi.size}; name the launcher's own with --mpi-library`,
  );
}

/** Throws what MPI says of a failure. */
function check(call: Functions, status: number): void {
  if (status === 0) return;
  const text = new Uint8Array(TEXT_BYTES), length = new Int32Array(1);
  call.MPI_Error_string(status, text, new Uint8Array(length.buffer));
  throw new Error(new TextDecoder().decode(text.subarray(0, length[0])));
}

function start(call: Functions, version: string, handles: Handles, abi: AbiName): Mpi {
  const { world, bytes: BYTES, ignoredStatus } = handles;
  const ok = (status: number) => check(call, status);
  const number = (read: (out: Uint8Array) => number) => {
    const out = new Int32Array(1);
    ok(read(new Uint8Array(out.buffer)));
    return out[0]!;
  };
  const newHandle = () => new Uint8Array(HANDLE_BYTES[abi]);
  ok(call.MPI_Comm_set_errhandler(world, handles.errorsReturn));
  const size = number((out) => call.MPI_Comm_size(world, out));
  const rank = number((out) => call.MPI_Comm_rank(world, out));
  const begin = (how: "MPI_Isend" | "MPI_Irecv", bytes: Uint8Array<ArrayBuffer>, rank: number) => {
    const handle = newHandle();
    ok(call[how](bytes, bytes.byteLength, BYTES, rank, TAG, world, handle));
    return { bytes, handle };
  };
  const done = new Int32Array(1), flag = new Uint8Array(done.buffer);
  return {
    version,
    rank,
    size,
    send: (bytes, to) => begin("MPI_Isend", bytes, to),
    receive: (into, from) => begin("MPI_Irecv", into, from),
    test({ handle }) {
      ok(call.MPI_Test(handle, flag, ignoredStatus));
      return done[0] !== 0;
    },
    advance: () => ok(call.MPI_Iprobe(rank, NO_TAG, world, flag, ignoredStatus)),
    gather(own) {
      const all = new Uint8Array(size * own.byteLength), count = own.byteLength;
      ok(call.MPI_Allgather(own, count, BYTES, all, count, BYTES, world));
      return all;
    },
    ...groupCalls(call, handles, rank, newHandle),
    finalize: () => ok(call.MPI_Finalize()),
  };
}

/** What all ranks of a communicator do together. */
function groupCalls(
  call: Functions,
  { world, floats, sum, inPlace, errorsReturn }: Handles,
  rank: number,
  newHandle: () => Uint8Array<ArrayBuffer>,
): Pick<Mpi, "barrier" | "split" | "free" | "allReduce"> {
  const ok = (status: number) => check(call, status);
  return {
    barrier() {
      const handle = newHandle();
      ok(call.MPI_Ibarrier(world, handle));
      return { bytes: handle, handle };
    },
    split(color) {
      const bytes = newHandle();
      ok(call.MPI_Comm_split(world, color ?? NO_COLOR, rank, bytes));
      if (color === undefined) return undefined;
      const view = new DataView(bytes.buffer);
      const handle = bytes.length === HANDLE_BYTES.mpich
        ? view.getInt32(0, true)
        : Deno.UnsafePointer.create(view.getBigUint64(0, true));
      ok(call.MPI_Comm_set_errhandler(handle, errorsReturn));
      return { handle, bytes };
    },
    free: ({ bytes }) => ok(call.MPI_Comm_free(bytes)),
    allReduce(values, { handle: communicator }) {
      const handle = newHandle(), { buffer, byteOffset, byteLength, length } = values;
      ok(call.MPI_Iallreduce(inPlace, values, length, floats, sum, communicator, handle));
      return { bytes: new Uint8Array(buffer, byteOffset, byteLength), handle };
    },
  };
}
