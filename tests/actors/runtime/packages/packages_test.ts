import assert from "node:assert/strict";
import { type Ask, createSystem, type PackageSpec } from "../../../../actors/mod.ts";

type Counter = { type: "Add"; by: number } | { type: "Read" } & Ask<number>;

const COUNTER: PackageSpec<number, Counter> = {
  from: import.meta.resolve("./fixtures/counter.ts"),
  protocol: 1,
};

Deno.test("an actor of a package that is trusted lives in a process of its own", async () => {
  await using system = createSystem();
  const counter = system.spawn(COUNTER, 40, { id: "counter", permissions: "inherit" });
  system.send(counter, { type: "Add", by: 2 });
  assert.equal(await system.ask(counter, { type: "Read" }), 42);
  assert.notEqual(counter.isolate, 0);
});

Deno.test("an actor that speaks another protocol never gets a message", async () => {
  await using system = createSystem();
  const spec = { ...COUNTER, protocol: 2 };
  const counter = system.spawn(spec, 40, { id: "counter", permissions: "inherit" });
  const failed = await system.failed.catch((error) => error);
  assert.match(failed.message, /its protocol must be version 2, received 1/);
  await system.stop(counter);
});
