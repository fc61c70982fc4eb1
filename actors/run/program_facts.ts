/**
 * Facts about the program that all ranks of a job have in common.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { readdirSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import about from "../../deno.json" with { type: "json" };
import { PROTOCOL_VERSION } from "../pipeline/protocol.ts";

/** Facts by name, as texts. */
export type Facts = Readonly<Record<string, string>>;

/** The rooms whose modules compute, or say what travels. */
const ROOMS = ["actors", "kernels", "schedules"];

/** Returns facts that all ranks must have in common before the job starts. */
export function programFacts(): Facts {
  const main = unlessDenied(() => hashOfFile(Deno.mainModule));
  return { ...packageFacts(), ...main && { "the hash of the program": main } };
}

/** Returns the facts that do not depend on the program. */
export function packageFacts(): Facts {
  const modules = unlessDenied(hashOfModules);
  return {
    "the version of Troupe": about.version,
    "the version of Deno": Deno.version.deno,
    "the version of the messages": String(PROTOCOL_VERSION),
    ...modules && { "the hash of Troupe's modules": modules },
  };
}

/** The hash of the modules, where they are files; those of a registry have the version's. */
function hashOfModules(): string | undefined {
  const about = new URL("../../deno.json", import.meta.url);
  if (about.protocol !== "file:") return undefined;
  const hash = createHash("sha256"), base = dirname(fileURLToPath(about));
  const below = (room: string) =>
    readdirSync(join(base, room), { recursive: true, encoding: "utf8" }).map((one) =>
      join(base, room, one)
    );
  for (const path of ROOMS.flatMap(below).filter((path) => path.endsWith(".ts")).sort()) {
    // With its name and its length, so that no two trees have one text.
    const text = Deno.readFileSync(path);
    hash.update(`${relative(base, path)} ${text.length}\n`).update(text);
  }
  return hash.digest("hex");
}

function hashOfFile(module: string): string | undefined {
  if (!module.startsWith("file:")) return undefined;
  return createHash("sha256").update(Deno.readFileSync(fileURLToPath(module))).digest("hex");
}

/** A rank without permission to read its modules reports that, so that no other rank waits for it. */
function unlessDenied<T>(read: () => T): T | string {
  try {
    return read();
  } catch (error) {
    return (error as Error).name;
  }
}
