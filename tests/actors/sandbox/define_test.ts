/** The messages of a package's actor pass its schemas; trusted packages, in this isolate. */

import assert from "node:assert/strict";
import { type Ask } from "../../../actors/runtime/mod.ts";
import { createSystem } from "../../../actors/transports/system.ts";
import { defineActor } from "../../../actors/sandbox/define.ts";
import { packageActor } from "../../../actors/sandbox/host.ts";
import { assertRefused } from "../../kernels/graph/refused.ts";

type Counter = { type: "Add"; by: number } | { type: "Read" } & Ask<number>;

const FROM = import.meta.resolve("./fixtures/counter.ts");

/** A trusted actor, in this isolate. */
const COUNTER = packageActor<number, Counter>({ from: FROM, protocol: 1, permissions: "inherit" });

Deno.test("a message that does not fit its schema is a dead letter, and its asker learns why", async () => {
  await using system = createSystem();
  const counter = system.spawn(COUNTER, 40, { id: "counter" });
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

/** An actor whose messages hold values that JSON does not have. */
const TENSOR = `const VALUES = { instanceof: "Float32Array", maxItems: 4, minItems: 1 };
export const actor = {
  name: "tensor", protocol: 1,
  messages: {
    Sum: {
      properties: {
        values: { anyOf: [VALUES, { type: "array", items: VALUES }] },
        at: { instanceof: "Date" },
        default: { instanceof: "Map", maxItems: 1 },
        const: { const: { instanceof: "Map" } },
      },
      required: ["values"],
      additionalProperties: false,
    },
    Any: {},
  },
  create(ctx) {
    const sum = (values) => values.reduce((all, one) => all + (one.reduce ? sum(one) : one), 0);
    return {
      Sum: ({ values }) => ctx.reply(sum(values)),
      Any: () => ctx.reply("any"),
      Hidden: () => ctx.reply("not listed"),
    };
  },
};`;

type Tensor =
  | { type: "Sum"; values: unknown; at?: unknown; default?: unknown; const?: unknown }
  | { type: "Any"; of?: unknown }
  | { type: "Hidden" };

const TENSOR_FROM = `data:text/javascript,${encodeURIComponent(TENSOR)}`;

const TENSOR_SPEC = packageActor<undefined, Tensor>({ from: TENSOR_FROM, permissions: "inherit" });

Deno.test("an actor with an older or a newer protocol never gets a message", async () => {
  const newer = TENSOR_FROM.replace("protocol%3A%201", "protocol%3A%203");
  for (const [from, protocol] of [[FROM, 1], [newer, 3]] as const) {
    await using system = createSystem();
    const spec = packageActor<number, Counter>({ from, protocol: 2, permissions: "inherit" });
    const actor = system.spawn(spec, 40, { id: "counter" });
    await assert.rejects(system.failed, new RegExp(`must be version 2, received ${protocol}`));
    await system.stop(actor);
  }
});

Deno.test("a schema asks for typed arrays, their lengths and other classes", async () => {
  await using system = createSystem();
  const tensor = system.spawn(TENSOR_SPEC, undefined, { id: "tensor" });
  const sum = (fields: object) =>
    system.ask<Tensor, unknown>(tensor, { type: "Sum", ...fields } as Tensor);
  const values = Float32Array.of(1, 2, 3, 4), circle: { self?: unknown } = {};
  circle.self = circle;
  const one = new Map([[1, 1]]), two = new Map([[1, 1], [2, 2]]);
  assert.equal(await sum({ values }), 10);
  assert.equal(await sum({ values: [values, values] }), 20);
  assert.equal(await sum({ values, at: new Date(0), default: one, extra: undefined }), 10);
  assert.equal(await sum({ values, const: { instanceof: "Map" } }), 10);
  const refused = (fields: object, why = 'fit the schema of "tensor"') =>
    assert.rejects(sum(fields), new RegExp(`Cannot ask "tensor" for "Sum": it must ${why}`));
  const five = new Float32Array(5), many = Array(1_000_000).fill(0);
  const none = new Float32Array(0), others = [Float64Array.of(1), [1, 2, 3], [values, five], 1n];
  for (const wrong of [five, none, ...others]) await refused({ values: wrong });
  const fields = [{ at: "1970" }, { default: {} }, { default: two }, { const: one }, { more: 1 }];
  for (const wrong of fields) await refused({ values, ...wrong });
  await refused({ values: { "~instanceof": "Float32Array", length: 1 } }, 'have no "~instanceof"');
  await refused({ values: circle }, "be at most 100 records deep");
  await refused({ values: many }, "have at most 1000000 values");
  assert.equal(await system.ask(tensor, { type: "Any", of: circle } as never), "any");
});

Deno.test("a message that a definition does not list is refused, and the actor keeps running", async () => {
  await using system = createSystem();
  const tensor = system.spawn(TENSOR_SPEC, undefined, { id: "tensor" });
  for (const type of ["Hidden", "toString", "__proto__"]) {
    const refused = /its type must be one that "tensor" lists \(Sum, Any\)$/;
    await assert.rejects(system.ask(tensor, { type } as never), refused);
  }
  assert.equal(await system.ask(tensor, { type: "Any" }), "any");
});

Deno.test("a definition of another kind is refused", () => {
  const right = { name: "a", protocol: 1, messages: { A: {} }, permissions: {}, create() {} };
  const define = (fields: object) => defineActor({ ...right, ...fields } as never);
  return assertRefused("definitions_of_actors", [
    () => define({ name: "" }),
    () => define({ protocol: 1.5 }),
    () => define({ protocol: 0 }),
    () => define({ messages: 1 }),
    () => define({ messages: { A: true } }),
    () => define({ permissions: "all" }),
    () => define({ create: {} }),
  ]);
});
