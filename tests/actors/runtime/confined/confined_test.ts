import assert from "node:assert/strict";
import { type Ask, createSystem, type PackageSpec } from "../../../../actors/mod.ts";

type Counter = { type: "Add"; by: number } | { type: "Read" } & Ask<number>;

const COUNTER: PackageSpec<number, Counter> = {
  from: import.meta.resolve("../packages/fixtures/counter.ts"),
  protocol: 1,
};

Deno.test("an actor of a package that is granted nothing works in a process of its own", async () => {
  await using system = createSystem();
  const counter = system.spawn(COUNTER, 40, { id: "counter" });
  system.send(counter, { type: "Add", by: 2 });
  assert.equal(await system.ask(counter, { type: "Read" }), 42);
  assert.notEqual(counter.isolate, 0);
});
