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
