import assert from "node:assert/strict";
import { initialValues, substream } from "../../../kernels/mod.ts";

const draw = (count: number, name = "w", deviation = 1) => {
  const spec = { name: "w", shape: [count], initializer: { kind: "normal", deviation } } as const;
  return initialValues(spec, name, 1);
};

Deno.test("first weights are normal: their moments and tails, and no two of a pair depend", () => {
  const count = 400_000, values = draw(count, "moments", 0.5);
  const mean = (f: (x: number, i: number) => number) =>
    values.reduce((sum, x, i) => sum + f(x / 0.5, i), 0) / count;
  const near = (got: number, want: number, deviation: number) =>
    assert.ok(Math.abs(got - want) < 5 * deviation / Math.sqrt(count), `${got}, not ${want}`);
  near(mean((x) => x), 0, 1);
  near(mean((x) => x ** 2), 1, Math.SQRT2);
  near(mean((x) => x ** 3), 0, Math.sqrt(15));
  near(mean((x) => x ** 4), 3, Math.sqrt(96));
  near(mean((x) => Math.abs(x) > 3 ? 1 : 0), 0.0026998, Math.sqrt(0.0027));
  for (const lag of [1, 2]) {
    const next = (i: number) => values[(i + lag) % count]! / 0.5;
    near(mean((x, i) => x * next(i)), 0, 1);
    near(mean((x, i) => x ** 2 * next(i) ** 2), 1, 3);
  }
});

Deno.test("first weights are those of the polar method with pure-rand's generator", () => {
  const got = draw(40_001, "polar"), generator = substream(1, "polar");
  const uniform = () => (generator.next() + 0.5) / 2 ** 31;
  for (let i = 0; i < got.length;) {
    const x = uniform(), y = uniform(), square = x * x + y * y;
    if (square >= 1) continue;
    const radius = Math.sqrt(-2 * Math.log(square) / square);
    for (const wanted of [radius * x, radius * y].slice(0, got.length - i)) {
      const value = got[i++]!;
      assert.ok(Math.abs(value - wanted) <= 1e-7 * Math.abs(wanted), `${i}: ${value}, ${wanted}`);
    }
  }
});

Deno.test("first weights are drawn in one order: fewer of a name are the first of more", () => {
  assert.deepEqual(draw(7), draw(8).subarray(0, 7));
  assert.equal(draw(1).length, 1);
});

Deno.test("first weights of a seed and a name stay what they are in this version", () => {
  const wanted = [0.3514906, 0.3206339, -0.0538048, -2.1566412];
  draw(4).forEach((value, i) => assert.ok(Math.abs(value - wanted[i]!) < 1e-6, `${value}`));
});
