/**
 * Loads the library of an MPI.
 *
 * @module
 */

import {
  type AbiName,
  HANDLE_TYPES,
  type Handles,
  NAMES,
  OPEN_MPI_ADDRESSES,
  OPEN_MPI_NUMBERS,
  PACKAGES,
} from "../mpi_abi.ts";
import { type Functions, symbolsOf, TEXT_BYTES } from "./mpi_functions.ts";

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
export function versionOf(call: Functions): string {
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
