/**
 * A program to be killed: it says which process it has, in which a hostile actor loops.
 *
 * @module
 */

import { type Ask, createSystem, type PackageSpec } from "../../../../actors/mod.ts";

type Hostile = { type: "Attack"; name: string } & Ask<string>;

const spec: PackageSpec<undefined, Hostile> = {
  from: import.meta.resolve("./fixtures/hostile.ts"),
};
const system = createSystem();
const hostile = system.spawn(spec, undefined, { id: "hos\x1btile" });
await system.ask(hostile, { type: "Attack", name: "print" });
const pid = await system.ask(hostile, { type: "Attack", name: "tell its number" });
system.send(hostile, { type: "Attack", name: "loop" });
await Deno.stdout.write(new TextEncoder().encode(pid));
