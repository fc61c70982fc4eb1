import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";
import {
  type Ask,
  CHILD_SUPERVISOR,
  childSpec,
  createSystem,
  hashModule,
  type PackageSpec,
  spawnPool,
} from "../../../../actors/mod.ts";
import { inFolder } from "../../../in_folder.ts";

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

/** Trusted, and in this isolate: what is tested is the same wherever it lives. */
const HERE = { permissions: "inherit", isolate: "local" } as const;

Deno.test("a message that does not fit its schema is a dead letter, and who asks is told why", async () => {
  await using system = createSystem();
  const counter = system.spawn(COUNTER, 40, { id: "counter", ...HERE });
  // deno-lint-ignore no-explicit-any
  const wrong: any[] = [{ type: "Add" }, { type: "Add", by: "2" }, { type: "Add", by: [2] }];
  for (const message of wrong) system.send(counter, message);
  await assert.rejects(system.ask(counter, { type: "Add", by: "2" } as never), {
    name: "TypeError",
    message: 'Cannot ask "counter" for "Add": it must fit the schema of "counter" ' +
      '(#/by: Instance type "string" is invalid. Expected "number".)',
  });
  system.send(counter, { type: "Add", by: 2 });
  assert.equal(await system.ask(counter, { type: "Read" }), 42);
  assert.deepEqual(
    system.deadLetters.map(({ type, to, reason }) => `${type} to ${to}: ${reason}`),
    Array(wrong.length + 1).fill("Add to counter: malformed"),
  );
});

type Tensor = { type: "Sum"; values: unknown; at?: unknown; default?: unknown } | {
  type: "Any";
  of?: unknown;
};

Deno.test("a schema asks for typed arrays, their lengths and other classes", async () => {
  await using system = createSystem();
  const from = import.meta.resolve("./fixtures/tensor.ts");
  const spec: PackageSpec<undefined, Tensor> = { from };
  const tensor = system.spawn(spec, undefined, { id: "tensor", ...HERE });
  const four = Float32Array.of(1, 2, 3, 4);
  assert.equal(await system.ask(tensor, { type: "Sum", values: four }), 10);
  assert.equal(await system.ask(tensor, { type: "Sum", values: [four, four] }), 20);
  assert.equal(await system.ask(tensor, { type: "Sum", values: four, at: new Date(0) }), 10);
  const circle: { self?: unknown } = {};
  circle.self = circle;
  for (
    const wrong of [
      { values: Float64Array.of(1) },
      { values: new Float32Array(5) },
      { values: [1, 2, 3] },
      { values: [four, new Float32Array(5)] },
      { values: { "~instanceof": "Float32Array", length: 1 } },
      { values: four, at: "1970" },
      { values: four, default: {} },
      { values: four, default: new Map([[1, 1], [2, 2]]) },
      { values: four, more: 1 },
      { values: circle },
      { values: 1n },
    ]
  ) {
    await assert.rejects(
      system.ask(tensor, { type: "Sum", ...wrong } as Tensor),
      /^TypeError: Cannot ask "tensor" for "Sum": it must/,
    );
  }
  assert.equal(await system.ask(tensor, { type: "Any", of: circle }), "any");
});

Deno.test("a message that a definition does not list has no handler, whatever the factory returns", async () => {
  await using system = createSystem();
  const spec: PackageSpec<undefined, { type: "Hidden" }> = {
    from: import.meta.resolve("./fixtures/tensor.ts"),
  };
  const tensor = system.spawn(spec, undefined, { id: "tensor", ...HERE });
  system.send(tensor, { type: "Hidden" });
  const { failure } = await system.failed.catch((error) => error);
  assert.equal(failure.kind, "unknown-message");
  assert.match(failure.error.message, /that "tensor" has a handler for \(Sum, Any\)$/);
});

Deno.test("a member of a pool that refuses a message has no more to do, and a supervisor begins packages again", async () => {
  await using system = createSystem();
  const pool = spawnPool<number, Counter>(system, {
    ...{ spec: COUNTER, init: 0, size: 2, policy: "smallest-mailbox", ...HERE },
  }, { id: "counters" });
  const wrong = { type: "Add" } as Counter;
  for (let n = 0; n < 3; n++) await assert.rejects(system.ask(pool, wrong as never), TypeError);
  assert.equal(await system.ask(pool, { type: "Read" }), 0);
  const supervisor = system.spawn(CHILD_SUPERVISOR, {
    ...{ strategy: "one-for-one", intensity: 1, periodMs: 5000 },
    children: [childSpec({ id: "c", spec: COUNTER, init: 7, ...HERE })],
  }, { id: "supervisor" });
  const child = await system.ask(supervisor, { type: "Child", id: "c" });
  assert.equal(await system.ask(child as typeof pool, { type: "Read" }), 7);
});

Deno.test("a package whose modules have another hash never runs", () =>
  inFolder(async (folder) => {
    const path = `${folder}/actor.ts`, from = pathToFileURL(path).href;
    await Deno.copyFile(new URL("./fixtures/counter.ts", import.meta.url), path);
    const { integrity } = await hashModule(from);
    const spec: PackageSpec<number, Counter> = { from, integrity };
    const text = await Deno.readTextFile(path), edited = `console.log("runs");\n${text}`;
    for (const permissions of ["inherit", {}] as const) {
      await Deno.writeTextFile(path, text);
      await using system = createSystem();
      const counter = system.spawn(spec, 1, { id: "counter", permissions });
      assert.equal(await system.ask(counter, { type: "Read" }), 1);
      await system.stop(counter);
      await Deno.writeTextFile(path, edited);
      const { integrity: received } = await hashModule(from);
      system.failed.catch(() => {}); // told with the answer
      const changed = system.spawn(spec, 1, { id: "edited", permissions });
      const sentence = `Cannot use ${from}: its hash must be ${integrity}, received ${received}`;
      await assert.rejects(
        system.ask(changed, { type: "Read" }),
        ({ message }: Error) => message.startsWith('Actor "edited"') && message.endsWith(sentence),
      );
    }
  }));
