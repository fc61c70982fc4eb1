/**
 * Exit codes and signal handling of all commands. The signals are Ctrl-C, SIGTERM and SIGHUP.
 *
 * Exit codes: 0 success; 2 bad input, reported before anything is written; 1 a failed run; 75 a run
 * that hangs and can continue only in a new process; 130 stopped by a signal (143 by SIGTERM before
 * there is anything to finish); 141 no program reads the output any more.
 *
 * @module
 */

import type { System } from "../actors/runtime/mod.ts";
import { assertInput, inputFileProblem, resultOr } from "../kernels/internal.ts";
import { openSoFar, type SoFar } from "./so_far.ts";
import { inOneLine, printError, quoted, showFetches } from "./terminal.ts";

/**
 * Checks that the file of a flag exists, is a regular file and is not too large.
 *
 * @throws {TypeError} when it is not; the message names the flag.
 */
export function checkFile(flag: string, path: string, bytesMax?: number): void {
  const problem = inputFileProblem(path, bytesMax);
  const must = "it must name a file that can be read", received = `${quoted(path)} (${problem})`;
  assertInput(problem === undefined, `use --${flag}`, must, received, TypeError);
}

/** Constants of POSIX. */
const SIGHUP = 1, SIG_IGN = 1n;

/** Upper bound of the size of `struct sigaction`. Its first member is the handler. */
const SIGACTION_BYTES = 256;

/**
 * Returns whether this program was started with SIGHUP ignored. Deno does not report this, so the
 * function calls the C library. Returns false where that is not possible, as on Windows.
 *
 * Call it before the first signal listener is added, because Deno then handles SIGHUP itself.
 */
const isHangUpIgnored = (): boolean =>
  resultOr(() => {
    const path = Deno.build.os === "darwin" ? "libSystem.dylib" : "libc.so.6";
    const library = Deno.dlopen(path, {
      sigaction: { parameters: ["i32", "pointer", "buffer"], result: "i32" },
    });
    const now = new BigUint64Array(SIGACTION_BYTES / 8);
    const result = library.symbols.sigaction(SIGHUP, null, now);
    library.close();
    return result === 0 && now[0] === SIG_IGN;
  }, false);

/** Context of a running command. */
export interface CommandContext {
  /**
   * Marks the input as checked: later failures are failed runs, not bad input.
   *
   * @param finishing the work that the command finishes after Ctrl-C, for a message. If undefined,
   * Ctrl-C ends the command immediately. If empty, the command finishes without a message: it ends
   * soon, or another process finishes the work and prints the message.
   */
  readonly begin: (finishing?: string) => void;
  /** Aborted by the first Ctrl-C. The command then finishes in good order. */
  readonly signal: AbortSignal;
  /** Receives the best result so far of a long computation, to print it if a signal arrives. */
  readonly soFar?: SoFar;
  /** The actor system of the training, when a recorded run is repeated. */
  readonly system?: System;
}

/** Milliseconds within which signals count as one: a terminal and a parent may both send it. */
const SAME_SIGNAL_MS = 1000;

/**
 * Runs a command and ends the process with its exit code.
 *
 * @param command returns the exit code.
 */
export async function runCommand(
  command: (context: CommandContext) => Promise<number>,
): Promise<never> {
  const controller = new AbortController();
  let hasBegun = false, inGoodOrder: string | undefined, firstSignal: number | undefined;
  const interrupt = () => {
    firstSignal ??= performance.now();
    if (inGoodOrder === undefined || performance.now() - firstSignal > SAME_SIGNAL_MS) {
      Deno.exit(130);
    }
    if (controller.signal.aborted) return;
    controller.abort();
    if (inGoodOrder !== "") {
      printError(`Finishing ${inGoodOrder}; press Ctrl-C again to end immediately.`);
    }
  };
  const begin = (finishing?: string) => {
    hasBegun ||= finishing !== "";
    const isHeard = inGoodOrder !== undefined, isToBeHeard = finishing !== undefined;
    inGoodOrder = finishing;
    if (isHeard !== isToBeHeard) setListeners(isToBeHeard);
  };
  const signals: Deno.Signal[] = Deno.build.os === "windows" ? ["SIGINT"] : ["SIGINT", "SIGTERM"];
  if (!isHangUpIgnored()) signals.push("SIGHUP");
  else Deno.addSignalListener("SIGHUP", () => {});
  // A file that may not grow is an error of its writer, not the end of the program.
  if (Deno.build.os !== "windows") Deno.addSignalListener("SIGXFSZ", () => {});
  const setListeners = (areSet: boolean) => {
    for (const name of signals) Deno[`${areSet ? "add" : "remove"}SignalListener`](name, interrupt);
  };
  // Without listeners the system ends the program, even in a long computation. Adding and removing
  // listeners makes this true for programs that a shell starts in the background with SIGINT ignored.
  setListeners(true);
  setListeners(false);
  showFetches();
  let code;
  try {
    code = await command({ begin, signal: controller.signal, soFar: openSoFar() });
  } catch (error) {
    if (error instanceof Deno.errors.BrokenPipe && /standard output/.test(error.message)) {
      Deno.exit(141);
    }
    const text = error instanceof Error ? error.message : String(error);
    printError(hasBegun ? text : inOneLine(text)); // bad input is reported in one line
    code = (error as { exitCode?: number } | undefined)?.exitCode ?? (hasBegun ? 1 : 2);
  }
  Deno.exit(code);
}
