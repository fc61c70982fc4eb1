/**
 * A program without all permissions that has confined actors: says what became of each.
 *
 * @module
 */

import { type Ask, createSystem, type Down, type PackageSpec } from "../../../../actors/mod.ts";

type Hostile = { type: "Attack"; name: string } & Ask<string>;

const spec: PackageSpec<undefined, Hostile> = {
  from: import.meta.resolve("./fixtures/hostile.ts"),
};
await using system = createSystem();

function refusal(permissions: object): string {
  try {
    system.spawn(spec, undefined, { id: "greedy", permissions });
    return "spawned";
  } catch (error) {
    return String(error);
  }
}

const refusals = [{ net: true }, { env: ["HOME"] }, { run: ["/bin/true"] }].map(refusal);
const options = { id: "hostile", memoryLimitMb: 160 };
const hostile = system.spawn(spec, undefined, options);
const down = new Promise<Down>((resolve) => system.watch(hostile, resolve));
const said = await system.ask(hostile, { type: "Attack", name: "work" });
system.send(hostile, { type: "Attack", name: "fill buffers" });
const { reason } = await down;
const ended = reason === "stopped" ? reason : reason.error.message;
await Deno.stdout.write(new TextEncoder().encode(JSON.stringify({ refusals, said, ended })));
