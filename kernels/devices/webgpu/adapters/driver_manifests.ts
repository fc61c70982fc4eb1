/**
 * Where the Vulkan loader of Linux finds drivers: manifests, JSON files that name their libraries.
 *
 * The order of the places is that of the loader's documentation, LoaderDriverInterface.md.
 *
 * @module
 */

import { join } from "node:path";

/** What is asked of the system. */
export interface System {
  /** An environment variable; undefined where there is none, or it may not be read. */
  readonly variable: (name: string) => string | undefined;
  /** The files of a folder, none where it is none; undefined where the path is a file. */
  readonly files: (folder: string) => readonly string[] | undefined;
}

/** The paths of all manifests, each once. */
export function driverManifests({ variable, files }: System = SYSTEM): string[] {
  const manifestsOf = (path: string) =>
    (files(path) ?? []).filter((name) => name.endsWith(".json")).sort()
      .map((name) => join(path, name));
  // A list of files, or of their folders.
  const listed = (value: string) =>
    split(value).flatMap((path) => files(path) === undefined ? [path] : manifestsOf(path));
  const only = variable("VK_DRIVER_FILES") ?? variable("VK_ICD_FILENAMES");
  if (only !== undefined) return [...new Set(listed(only))];
  const added = listed(variable("VK_ADD_DRIVER_FILES") ?? "");
  const home = variable("HOME"), inHome = (path: string) => home ? join(home, path) : "";
  const roots = [
    variable("XDG_CONFIG_HOME") || inHome(".config"),
    variable("XDG_CONFIG_DIRS") || "/etc/xdg",
    "/usr/local/etc:/etc",
    variable("XDG_DATA_HOME") || inHome(".local/share"),
    variable("XDG_DATA_DIRS") || "/usr/local/share:/usr/share",
  ].flatMap(split);
  return [
    ...new Set([...added, ...roots.flatMap((root) => manifestsOf(join(root, "vulkan/icd.d")))]),
  ];
}

/** Which drivers alone the user lets be seen, and by which variable; undefined where it is all. */
export function namedDrivers({ variable }: System = SYSTEM): string | undefined {
  const name = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"].find((one) => variable(one) !== undefined);
  return name && `${name}=${variable(name)}`;
}

const split = (list: string) => list.split(":").filter((path) => path !== "");

const SYSTEM: System = {
  variable(name) {
    try {
      return Deno.env.get(name);
    } catch {
      return undefined;
    }
  },
  files(folder) {
    try {
      return [...Deno.readDirSync(folder)].map(({ name }) => name);
    } catch (error) {
      return error instanceof Deno.errors.NotADirectory ? undefined : [];
    }
  },
};
