/**
 * What every command shares: exit codes, and the signals that end it: Ctrl-C, SIGTERM and SIGHUP.
 *
 * Exit codes: 0 done; 2 bad input, told before anything is written; 1 a run that failed; 75 a run
 * that hangs where only a new one can go on; 130 ended by a signal (143 by SIGTERM before there is
 * anything to finish); 141 when no program reads the output any more.
 *
 * @module
 */

import type { System } from "../actors/runtime/mod.ts";
import { inputFileProblem } from "../kernels/internal.ts";
import { openSoFar, type SoFar } from "./so_far.ts";
import { inOneLine, printError, quoted, showFetches } from "./terminal.ts";

/**
 * Refuses what a flag cannot read: what is not there, no regular file, or too large.
 *
 * @throws {TypeError} naming the flag.
 */
export function checkFile(flag: string, path: string, bytesMax?: number): void {
  const problem = inputFileProblem(path, bytesMax);
  if (problem === undefined) return;
  throw new TypeError(
    `Cannot use --${flag}: it must name a file that can be read, received ${
      quoted(path)
    } (${problem})`,
  );
}

/** Of POSIX. */
const SIGHUP = 1, SIG_IGN = 1n;

/** More than `struct sigaction` takes anywhere; its first member is the handler. */
const SIGACTION_BYTES = 256;

/**
 * Whether this program was started with SIGHUP ignored. Deno does not tell, so the C library is asked;
 * where that cannot be, as on Windows, the answer is no.
 *
 * Must be asked before the first listener for any signal is added: then Deno takes SIGHUP over.
 */
function isHangUpIgnored(): boolean {
  try {
    const path = Deno.build.os === "darwin" ? "libSystem.dylib" : "libc.so.6";
    const library = Deno.dlopen(path, {
      sigaction: { parameters: ["i32", "pointer", "buffer"], result: "i32" },
    });
    const now = new BigUint64Array(SIGACTION_BYTES / 8);
    const result = library.symbols.sigaction(SIGHUP, null, now);
    library.close();
    return result === 0 && now[0] === SIG_IGN;
  } catch {
    return false;
  }
}

/** What a command gets. */
export interface CommandContext {
  /**
   * Called once the input is checked: what fails from now on is a failed run, not bad input.
   *
   * @param finishing what the command brings to its end after Ctrl-C, in words; where there is no
   * such thing, Ctrl-C ends it at once. Empty where there is nothing to say: it ends soon, or another
   * process brings it to its end, and says so.
   */
  readonly begin: (finishing?: string) => void;
  /** Aborted by the first Ctrl-C: end in good order. */
  readonly signal: AbortSignal;
  /** Takes the best result so far of a long computation, for a signal that ends it. */
  readonly soFar?: SoFar;
  /** The actor system that training lives in, when a recorded run is made again. */
  readonly system?: System;
}

/** Signals that come within this time are one: a terminal and a parent process may both send. */
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
      printError(`Finishing ${inGoodOrder}; press Ctrl-C again to end at once.`);
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
  const setListeners = (areSet: boolean) => {
    for (const name of signals) Deno[`${areSet ? "add" : "remove"}SignalListener`](name, interrupt);
  };
  // Without listeners the system ends the program, even in a long computation. Once there was one,
  // it also does so where a shell starts a program in the background, which ignores Ctrl-C.
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
    printError(hasBegun ? text : inOneLine(text)); // bad input is told in one line
    code = (error as { exitCode?: number } | undefined)?.exitCode ?? (hasBegun ? 1 : 2);
  }
  Deno.exit(code);
}
