/**
 * What the confined processes of a system share: a private folder with the files that they are
 * started with, there as long as one of them lives, and what their packages are made of.
 *
 * @module
 */

import { join } from "node:path";
import { closeRendezvousFolder, openRendezvousFolder } from "../process/rendezvous_folder.ts";
import type { Confinement } from "../confinement.ts";
import { fetchGraph, type PackageGraph } from "./package_graph.ts";

/** The shared things of the confined processes of one system. */
export class Workshop {
  readonly #graphs = new Map<string, Promise<PackageGraph>>();
  #folder: string | undefined;
  #users = 0;

  /**
   * Another process needs it, until {@linkcode leave}.
   *
   * @returns path of a file of its own, which does not exist yet.
   * @throws {RangeError} when the folder for temporary files cannot be used.
   */
  enter(isolate: number): string {
    this.#folder ??= openRendezvousFolder();
    this.#users++;
    return join(this.#folder, `${isolate}.audit`);
  }

  /** What the package is made of, found out once. */
  graphOf({ from, integrity, lock }: Confinement): Promise<PackageGraph> {
    const key = JSON.stringify([from, integrity, lock]), known = this.#graphs.get(key);
    if (known) return known;
    const graph = fetchGraph({ from, integrity, lock }, this.#folder!);
    this.#graphs.set(key, graph);
    // It may be there the next time.
    graph.catch(() => this.#graphs.delete(key));
    return graph;
  }

  /** A process has ended. After the last one nothing is left. */
  leave(): void {
    if (--this.#users > 0) return;
    closeRendezvousFolder(this.#folder!);
    this.#folder = undefined;
    this.#graphs.clear();
  }
}
