/** The rules of optimizers, groups of parameters and averages, by hand; rates of one cycle. */

import assert from "node:assert/strict";
import {
  ADAMW_DEFAULTS,
  type AdamWOptions,
  compileModel,
  learningRateAt,
  mlp,
  openReference,
  type OptimizerOptions,
} from "../../../kernels/mod.ts";
import { completeOptimizer, groupOf, initialValues, openStage } from "../../../kernels/internal.ts";

const PROGRAM = compileModel(mlp({ inputs: 5, hidden: 4, layers: 1, classes: 3 }, 2), "none");
const BATCH = {
  features: Float32Array.from({ length: 10 }, (_, i) => Math.sin(i)),
  labels: Int32Array.of(2, 0),
};

type Values = ReadonlyMap<string, Float32Array>;

/** Takes two steps; returns the gradients of each, and the state before and after each. */
async function stepTwice(optimizer: OptimizerOptions, rate: number) {
  const device = await openReference(), states: { weights: Values; moments: Values }[] = [];
  const stage = await openStage(device, PROGRAM, { optimizer, backward: "whole" });
  const weights = new Map(
    PROGRAM.parameters.map(({ name, spec }) => [name, initialValues(spec, name, 1)]),
  );
  stage.load({
    weights,
    moments: new Map([...weights].map(([name, one]) => [`${name}.ema`, one])),
  });
  states.push(await stage.save());
  const gradients: Values[] = [];
  for (const step of [1, 2]) {
    stage.zeroGradients();
    await stage.forward(0, undefined, BATCH);
    await stage.backward(0, "B", undefined, 0.5);
    gradients.push(await stage.gradients());
    await stage.optimize(step, rate);
    states.push(await stage.save());
  }
  device.close();
  return { gradients, states };
}

function assertNear(found: Float32Array, wanted: number[], what: string): void {
  const off = wanted.map((value, i) => Math.abs(value - found[i]!));
  assert.ok(off.length === found.length && Math.max(...off) < 1e-6, `${what}: ${Math.max(...off)}`);
}

Deno.test("Lion steps by the sign of the moment moved towards the gradient", async () => {
  const lion = completeOptimizer({ kind: "lion", weightDecay: 0.1 });
  assert.deepEqual(lion, { kind: "lion", beta1: 0.9, beta2: 0.99, weightDecay: 0.1 });
  const rate = 0.01, { gradients, states } = await stepTwice(lion, rate);
  for (const { name, shape } of PROGRAM.parameters) {
    for (const [i, all] of gradients.entries()) {
      const g = all.get(name)!, w = states[i]!.weights.get(name)!;
      const m = states[i]!.moments.get(`${name}.exp_avg`)!,
        kept = 1 - rate * (shape.length > 1 ? 0.1 : 0);
      const next = Array.from(
        w,
        (one, k) => one * kept - rate * Math.sign(0.9 * m[k]! + 0.1 * g[k]!),
      );
      assertNear(states[i + 1]!.weights.get(name)!, next, name);
      const moved = Array.from(m, (one, k) => 0.99 * one + 0.01 * g[k]!);
      assertNear(states[i + 1]!.moments.get(`${name}.exp_avg`)!, moved, `${name}.exp_avg`);
    }
  }
});

Deno.test("a group has its rate and its decay, also of biases, and the first that matches counts", async () => {
  const groups: AdamWOptions["groups"] = [
    { match: "*.0.bias", rate: 3, weightDecay: 0.5 },
    { match: "*bias", rate: 0 },
    { match: "*.0.*", weightDecay: 0 },
  ];
  const sgd = { kind: "sgd", momentum: 0, weightDecay: 0.2 } as const, rate = 0.1;
  const { gradients, states } = await stepTwice({ ...sgd, groups }, rate);
  const settings = new Map<string, readonly [factor: number, decay: number]>();
  for (const { name, shape } of PROGRAM.parameters) {
    const index = groupOf({ ...sgd, groups }, name),
      { rate: factor = 1, weightDecay } = groups[index ?? -1] ?? {};
    const [f, d] = [factor, weightDecay ?? (shape.length > 1 ? 0.2 : 0)];
    settings.set(name, [f, d]);
    const g = gradients[1]!.get(name)!, w = states[1]!.weights.get(name)!;
    assertNear(
      states[2]!.weights.get(name)!,
      Array.from(w, (one, k) => one - rate * f * (g[k]! + d * one)),
      name,
    );
  }
  assert.deepEqual([...settings.values()], [[1, 0], [3, 0.5], [1, 0.2], [0, 0]]);
});

Deno.test("an average moves by 1 − d of its distance, and changes no weight", async () => {
  const plain = await stepTwice(ADAMW_DEFAULTS, 0.1);
  const { states } = await stepTwice({ ...ADAMW_DEFAULTS, ema: 0.75 }, 0.1);
  for (const { name } of PROGRAM.parameters) {
    assert.deepEqual(states[2]!.weights.get(name), plain.states[2]!.weights.get(name));
    let average = Array.from(states[0]!.weights.get(name)!);
    for (const { weights, moments } of states.slice(1)) {
      average = average.map((one, k) => one + 0.25 * (weights.get(name)![k]! - one));
      assertNear(moments.get(`${name}.ema`)!, average, name);
    }
  }
});

Deno.test("one cycle has the rates of PyTorch's OneCycleLR", () => {
  const ratesOf = (more: { warmup: number; minRate?: number }) =>
    Array.from(
      { length: 10 },
      (_, i) => learningRateAt({ rate: 1, schedule: "one-cycle", steps: 10, ...more }, i + 1),
    );
  const near = (found: number[], wanted: number[]) =>
    wanted.forEach((rate, i) => assert.ok(Math.abs(rate - found[i]!) < 1e-12, `step ${i + 1}`));
  // Of PyTorch 1.13: OneCycleLR(max_lr=1, total_steps=10), then pct_start=0.4, final_div_factor=0.4.
  near(ratesOf({ warmup: 0 }), [
    ...[0.040000000000000036, 0.52, 1.0, 0.9504846320134737, 0.8117456539497631],
    ...[0.6112620219362893, 0.38874197806371075, 0.18825834605023697, 0.049519367986526286, 4e-06],
  ]);
  near(ratesOf({ warmup: 4, minRate: 0.1 }), [
    ...[0.040000000000000036, 0.28, 0.7599999999999999, 1.0, 0.9397114317029974],
    ...[0.775, 0.55, 0.3250000000000001, 0.16028856829700258, 0.09999999999999999],
  ]);
});
