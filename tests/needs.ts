/** Tests that need something of the machine. */

import { findOneDnn } from "../kernels/devices/cpu/onednn.ts";

/** Something that a machine may lack. */
export interface Need {
  readonly isThere: boolean;
  /** Instructions for the title of a skipped test. */
  readonly reason: string;
}

/** Registers a test; if its requirement is missing, it is skipped with the reason in its title. */
export function testNeeding(
  { isThere, reason }: Need,
  name: string,
  fn: (t: Deno.TestContext) => Promise<void> | void,
): void {
  if (isThere) Deno.test(name, fn);
  else Deno.test({ name: `${name} [skipped: it needs ${reason}]`, ignore: true, fn });
}

/** The need of a program that the shell finds. */
export function program(name: string, reason = name): Need {
  const { success } = new Deno.Command("sh", { args: ["-c", `command -v ${name}`] }).outputSync();
  return { isThere: success, reason };
}

/** The need of products in BF16: a CPU and a library that compute them. */
export const BF16: Need = bf16Need();

function bf16Need(): Need {
  try {
    findOneDnn();
    return { isThere: true, reason: "" };
  } catch {
    return { isThere: false, reason: "AVX512-BF16 or AMX, and Debian's libdnnl2" };
  }
}
