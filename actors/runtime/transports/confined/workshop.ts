/**
 * What the confined processes of a system share: a private folder with the files that they are
 * started with, there as long as one of them lives, and what their packages are made of.
 *
 * @module
 */

import { join } from "node:path";
import { closeRendezvousFolder, openRendezvousFolder } from "../process/rendezvous_folder.ts";
import type { Confinement } from "../confinement.ts";
import { checkIntegrity } from "../../packages/hash_module.ts";
import { fetchGraph, type PackageGraph } from "./package_graph.ts";

/** What Deno keeps for scripts in its cache: `localStorage` and `caches`, which need no permission. */
const KEPT = "location_data";

/**
 * Makes a cache that is Deno's, but for what scripts may keep there: who could write that would fill
 * the disk, and leave notes to others.
 *
 * @returns its path.
 */
export function ownCache(cache: string, folder: string): string {
  const own = join(folder, "cache");
  Deno.mkdirSync(own);
  for (const { name } of Deno.readDirSync(cache)) {
    // What belongs to a database is found beside it.
    if (name === KEPT || /-(wal|shm)$/.test(name)) continue;
    Deno.symlinkSync(join(cache, name), join(own, name));
  }
  return own;
}

/** Whether a script has opened what has no bound: `localStorage` has one, of 10 MB. */
export function hasOpenedCaches(cache: string): boolean {
  try {
    return Deno.lstatSync(join(cache, KEPT, "web_cache")) !== undefined;
  } catch {
    return false;
  }
}

/** The shared things of the confined processes of one system. */
export class Workshop {
  readonly #graphs = new Map<string, Promise<PackageGraph>>();
  #folder: string | undefined;
  #users = 0;

  /**
   * Another process needs it, until {@linkcode leave}.
   *
   * @returns path of a folder of its own.
   * @throws {RangeError} when the folder for temporary files cannot be used.
   */
  enter(isolate: number): string {
    this.#folder ??= openRendezvousFolder();
    this.#users++;
    const own = this.#ownFolder(isolate);
    Deno.mkdirSync(own);
    return own;
  }

  /** What the package is made of, found out once; its files may have changed since. */
  graphOf({ from, integrity, lock }: Confinement): Promise<PackageGraph> {
    const key = JSON.stringify([from, integrity, lock]), known = this.#graphs.get(key);
    if (known) return integrity === undefined ? known : checked(known, integrity);
    const graph = fetchGraph({ from, integrity, lock }, this.#folder!);
    this.#graphs.set(key, graph);
    // It may be there the next time.
    graph.catch(() => this.#graphs.delete(key));
    return graph;
  }

  /** A process has ended: nothing that was its own is left, and after the last one nothing at all. */
  leave(isolate: number): void {
    if (--this.#users > 0) return removeOwn(this.#ownFolder(isolate));
    closeRendezvousFolder(this.#folder!);
    this.#folder = undefined;
    this.#graphs.clear();
  }

  #ownFolder(isolate: number): string {
    return join(this.#folder!, `${isolate}`);
  }
}

async function checked(known: Promise<PackageGraph>, integrity: string): Promise<PackageGraph> {
  await checkIntegrity((await known).graph, integrity);
  return known;
}

function removeOwn(folder: string): void {
  try {
    Deno.removeSync(folder, { recursive: true });
  } catch {
    // What it has started still writes there, and the last one removes it all.
  }
}
