/**
 * The functions of MPI that are called, as foreign ones.
 *
 * @module
 */

/** Bytes of a text that MPI writes. */
export const TEXT_BYTES = 8192;

/** The functions, with the type of handles of an interface. */
export function symbolsOf<H extends "i32" | "pointer">(handle: H) {
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
export type Functions = Readonly<
  Record<keyof ReturnType<typeof symbolsOf>, (...args: unknown[]) => number>
>;
