/** Spawns an actor by the name that its argument says, confined, and asks it. */

// deno-lint-ignore-file no-console -- a program says what it got
import { type Ask, createSystem, openRegistry } from "../../../actors/mod.ts";

type Counter = { type: "Add"; by: number } | { type: "Read" } & Ask<number>;

const spec = openRegistry().spec<number, Counter>(Deno.args[0]!);
await using system = createSystem();
system.failed.catch(() => {});
const counter = system.spawn(spec, 40, { id: "counter" });
system.send(counter, { type: "Add", by: 2 });
console.log(await system.ask(counter, { type: "Read" }).catch((error) => String(error)));
