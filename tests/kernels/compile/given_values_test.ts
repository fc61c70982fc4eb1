/** Values that layers give by name: what cannot be is told in one sentence. */

import assert from "node:assert/strict";
import {
  type AnyLayer,
  compileModel,
  inputsOf,
  type Layer,
  partition,
  startsOf,
  type Value,
  type Values,
} from "../../../kernels/mod.ts";

const WIDTH = 4;

const start = (name: string, given: readonly string[] = []): Layer => ({
  name,
  build(g) {
    const x = g.mul(g.batch("x", [2, WIDTH]), g.parameter("weight", [WIDTH]));
    for (const one of given) g.give(one, x);
    return x;
  },
});

const layer = (name: string, { takes = [], gives = [] }: {
  readonly takes?: readonly string[];
  readonly gives?: readonly string[];
}): Layer => ({
  name,
  build(g, x) {
    let h = g.mul(x!, g.parameter("weight", [WIDTH]));
    for (const one of takes) h = g.add(h, g.take(one));
    for (const one of gives) g.give(one, h);
    return h;
  },
});

const loss: Layer = { name: "loss", build: (g, x) => g.sum(x!, [1]) };

const compile = (...layers: AnyLayer[]) =>
  compileModel({ name: "own", layers, predictions: 2 }, "none");

Deno.test("a name that two layers give is refused", () => {
  const layers = [start("first", ["memory"]), layer("second", { gives: ["memory"] }), loss];
  assert.throws(() => compile(...layers), {
    name: "TypeError",
    message: 'Cannot build the layer "second": cannot give a value: "memory" must be given once, ' +
      "received it twice",
  });
});

Deno.test("a value that no later layer takes is refused", () => {
  assert.throws(() => compile(start("first", ["memory"]), loss), {
    name: "TypeError",
    message: 'Cannot compile model: a later layer must take "memory", which the layer "first" ' +
      "gives, received none that does",
  });
});

Deno.test("a name that nobody gives is refused with those that there are", () => {
  const layers = [start("first", ["a", "b"]), layer("user", { takes: ["a", "b", "c"] }), loss];
  assert.throws(() => compile(...layers), {
    name: "RangeError",
    message: 'Cannot build the layer "user": cannot take "c": a layer before must give it, ' +
      'received "a", "b"',
  });
});

Deno.test("a layer that takes what a later one gives is refused with the circle", () => {
  const layers = [
    start("first"),
    layer("user", { takes: ["late"] }),
    layer("between", {}),
    layer("maker", { gives: ["late"] }),
    loss,
  ];
  assert.throws(() => compile(...layers), {
    name: "RangeError",
    message: 'Cannot compile model: the layer "user" must not take "late" from a later one, ' +
      'received a circle: "user" → "between" → "maker" → "user"',
  });
});

Deno.test("an entry of a record, or a value taken, that a layer does not use is refused", () => {
  const pair: Layer<Value, Values> = {
    name: "pair",
    build(g, x) {
      g.give("also", x!);
      return { h: x!, mask: g.greater(x!, g.scalar(0)) };
    },
  };
  const half: Layer<{ h: Value; mask: Value }> = { name: "half", build: (_, x) => x!.h };
  assert.throws(() => compile(start("first"), pair as AnyLayer, half as AnyLayer, loss), {
    message: 'Cannot compile the layer "half": it must use "mask", which it is handed, received ' +
      "no use of it",
  });
  const idle: Layer<{ h: Value; mask: Value }> = {
    name: "idle",
    build(g, x) {
      g.take("also");
      return g.where(x!.mask, x!.h, g.scalar(0));
    },
  };
  assert.throws(() => compile(start("first"), pair as AnyLayer, idle as AnyLayer, loss), {
    message: 'Cannot compile the layer "idle": it must use "also", which it takes, received no ' +
      "use of it",
  });
});

Deno.test("equal layers that take the same value share a program, but for the last of them", () => {
  const takes = ["memory"];
  const { programs } = compile(
    start("first", ["memory"]),
    ...[1, 2, 3, 4].map((n) => layer(`user ${n}`, { takes })),
    loss,
  );
  assert.equal(programs.length, 4);
  const kinds = programs.map((program) =>
    inputsOf(program).find(({ name }) => name === "skip.memory")
  );
  assert.deepEqual(kinds.map((one) => one?.gradient), [undefined, "added", "written", undefined]);
});

Deno.test("of cuts that cost as much that is taken which sends less by name", () => {
  const wide = (name: string, own: { takes?: string[]; gives?: string[] }): Layer => {
    const { build } = layer(name, own);
    return { name, build: (g, x) => g.gemm(build(g, x), g.parameter("square", [WIDTH, WIDTH])) };
  };
  const layers = [
    start("first"),
    wide("a", { gives: ["near"] }),
    wide("b", { takes: ["near"] }),
    wide("c", {}),
    loss,
  ];
  const program = compile(...layers);
  assert.deepEqual(partition(program.costs, 2), [0, 2]);
  assert.deepEqual(startsOf(program, 2), [0, 3]);
});
