/**
 * A hash of all that runs when a module is imported.
 *
 * [Note: what is hashed] One line for each module that the first one leads to, by imports of code,
 * dynamic ones too where their specifier is written out: its specifier, a space, and the SHA-256 of
 * its text in hexadecimal digits. Modules of files are named by their way from the folder of the
 * first module (`./actor.ts`, `../lib/sum.ts`), so that a checkout elsewhere has the same hash; others
 * by their URLs, with the versions that were chosen. Then a line for each package of npm, `npm:`, its
 * name, `@`, its version, a space, and the integrity that its registry gives, under which Deno keeps
 * and checks it. Parts of Deno (`node:fs`), and names without a meaning, are named only. Lines are in the order of their code
 * units; each ends with a line feed. What only types need is not hashed, nor is what a module imports
 * by a specifier that it computes: that is the business of permissions. Who may write to the files of
 * this machine while a program starts is not kept from changing them after they were hashed.
 *
 * @module
 */

import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { posix } from "node:path";
import {
  type GraphModule,
  type GraphOptions,
  type Lock,
  type ModuleGraph,
  readGraph,
} from "./module_graph.ts";

/** What a module is made of, and its hash. */
export interface HashedModule extends ModuleGraph {
  /** `sha256-` and the hash, in base64. */
  readonly integrity: string;
  /** The versions that were chosen for what it imports. */
  readonly lock: Lock;
}

/** Bytes of a module's text. */
const TEXT_BYTES_MAX = 2 ** 26;

/**
 * Fetches a module with all that it imports, and hashes that; none of it is run.
 *
 * @param specifier `jsr:`, `npm:`, or an absolute URL.
 * @throws {TypeError} (as a rejection) when a module is not to be had.
 *
 * @example
 * ```ts
 * import { hashModule } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * const { integrity } = await hashModule("data:text/javascript,export const a = 1");
 * assert.match(integrity, /^sha256-/);
 * ```
 */
export async function hashModule(
  specifier: string,
  options?: GraphOptions,
): Promise<HashedModule> {
  const graph = await readGraph(specifier, options);
  return { ...graph, integrity: await hashGraph(graph) };
}

/** The hash of a graph. */
export async function hashGraph(graph: ModuleGraph): Promise<string> {
  const lines = await Promise.all(graph.modules.map((module) => lineOf(module, graph.root)));
  const packages = graph.npm.map(({ id, integrity }) => `npm:${id} ${integrity}\n`);
  const hash = createHash("sha256");
  for (const line of [...lines, ...packages].sort()) hash.update(line);
  return `sha256-${hash.digest("base64")}`;
}

/**
 * Refuses modules that have another hash than they must have.
 *
 * @throws {RangeError} (as a rejection) naming both.
 */
export async function checkIntegrity(graph: ModuleGraph, wanted: string): Promise<void> {
  const received = await hashGraph(graph);
  if (received === wanted) return;
  throw new RangeError(
    `Cannot use ${graph.specifier}: its hash must be ${wanted}, received ${received}`,
  );
}

async function lineOf({ specifier, local }: GraphModule, root: string): Promise<string> {
  const name = named(specifier, root);
  const cannot = `Cannot hash ${specifier}`;
  if (local === undefined) {
    if (!/^https?:/.test(specifier)) return `${name}\n`;
    throw new TypeError(`${cannot}: its text must be in the cache`);
  }
  const { isFile, size } = await Deno.stat(local).catch(() => ({ isFile: false, size: 0 }));
  if (!isFile) throw new TypeError(`${cannot}: it must be a file that is there`);
  if (size > TEXT_BYTES_MAX) {
    throw new TypeError(
      `${cannot}: it must have at most ${TEXT_BYTES_MAX} bytes, received ${size}`,
    );
  }
  const text = withoutNotes(await Deno.readFile(local), specifier);
  return `${name} ${createHash("sha256").update(text).digest("hex")}\n`;
}

function named(specifier: string, root: string): string {
  if (!specifier.startsWith("file:") || !root.startsWith("file:")) return specifier;
  const way = posix.relative(posix.dirname(new URL(root).pathname), new URL(specifier).pathname);
  return way.startsWith("../") ? way : `./${way}`;
}

/** What Deno's cache writes below the text of what it fetched. */
const NOTES = "\n// denoCacheMetadata=";

function withoutNotes(bytes: Uint8Array, specifier: string): Uint8Array {
  if (specifier.startsWith("file:")) return bytes;
  const at = Buffer.from(bytes.buffer).lastIndexOf(NOTES);
  return at < 0 ? bytes : bytes.subarray(0, at);
}
