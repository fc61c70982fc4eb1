/**
 * The hosts of a job, and how many ranks each takes.
 *
 * @module
 */

import { checkFile } from "../check_file.ts";
import { quoted } from "../escape.ts";

/** A host with its share of the ranks. */
export interface Host {
  readonly name: string;
  readonly ranks: number;
}

/** A host as a file names it. */
interface ListedHost {
  readonly name: string;
  /** How many ranks it can take, where that is said. */
  readonly slots: number | undefined;
}

/** The most bytes of such a file. */
const BYTES_MAX = 2 ** 20;

/**
 * `node1`, `node1:4` as MPICH has it, `node1 slots=4` as Open MPI has it. No name begins as an option
 * does: a remote shell would take it for one.
 */
const LINE = /^(\w[\w.-]{0,254})(?:(?:\s*:\s*|\s+slots\s*=\s*)(\d{1,6}))?$/;

/**
 * Reads a file of hosts.
 *
 * @throws {TypeError} when there is no such file.
 * @throws {SyntaxError} when a line of it names no host, or none does.
 */
export function readHosts(path: string): readonly ListedHost[] {
  checkFile("hosts", path, BYTES_MAX);
  const hosts = Deno.readTextFileSync(path).split("\n").flatMap((text, i): ListedHost[] => {
    const line = text.replace(/#.*/, "").trim();
    if (line === "") return [];
    const [, name, slots] = LINE.exec(line) ?? [];
    if (name !== undefined && slots !== "0") {
      return [{ name, slots: slots === undefined ? undefined : Number(slots) }];
    }
    throw new SyntaxError(
      `Cannot use --hosts: line ${
        i + 1
      } must be a host, such as node1, node1:4 or node1 slots=4, received ${quoted(line)}`,
    );
  });
  if (hosts.length > 0) return hosts;
  throw new SyntaxError("Cannot use --hosts: its file must name a host, received none");
}

/**
 * Gives each host its ranks, in order, as neighbours of a pipeline talk most: where no host says how
 * many it can take, even shares; else what each can take, one where it does not say.
 *
 * @returns the hosts that get some, and whether one gets more than it can take.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const [a, b] = [{ name: "a", slots: undefined }, { name: "b", slots: undefined }];
 * assert.deepEqual(placeRanks([a, b], 5).hosts, [{ name: "a", ranks: 3 }, { name: "b", ranks: 2 }]);
 * const many = placeRanks([{ ...a, slots: 4 }, b], 8);
 * assert.deepEqual(many.hosts, [{ name: "a", ranks: 7 }, { name: "b", ranks: 1 }]);
 * assert.equal(many.isTooMany, true);
 * ```
 */
export function placeRanks(
  listed: readonly ListedHost[],
  ranks: number,
): { readonly hosts: readonly Host[]; readonly isTooMany: boolean } {
  const isSaid = listed.some(({ slots }) => slots !== undefined);
  const shares = listed.map(({ slots }) => isSaid ? slots ?? 1 : 1);
  const total = shares.reduce((sum, share) => sum + share, 0), isTooMany = isSaid && ranks > total;
  const isScaled = !isSaid || isTooMany;
  let left = ranks, leftShares = total;
  const hosts = listed.map(({ name }, i): Host => {
    const share = shares[i]!;
    const taken = isScaled ? Math.ceil(left * share / leftShares) : Math.min(left, share);
    left -= taken;
    leftShares -= share;
    return { name, ranks: taken };
  });
  return { hosts: hosts.filter((host) => host.ranks > 0), isTooMany };
}
