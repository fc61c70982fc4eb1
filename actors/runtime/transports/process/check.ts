/**
 * Whether processes can be started, asked before a run spends hours on what comes first.
 *
 * @module
 */

import { permissionFlags } from "./permissions.ts";
import { closeRendezvous, openRendezvous } from "./rendezvous.ts";

/**
 * Makes sure that actors can have processes of their own.
 *
 * @throws {Deno.errors.NotCapable} when a process would get other permissions than this program.
 * @throws {RangeError} when the folder for temporary files is missing, full, or named too long.
 */
export function checkProcesses(): void {
  permissionFlags();
  closeRendezvous(openRendezvous());
}
