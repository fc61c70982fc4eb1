/**
 * The same model in another library for training in JavaScript, beside Troupe's devices.
 *
 * @module
 */

import { openDevice } from "../kernels/mod.ts";
import { firstLoss, openJax } from "./peers/jax.ts";
import { benchDevices } from "./support/devices.ts";
import type { Row } from "./support/row.ts";
import { openBenchStage } from "./support/stage.ts";
import { interleave, spreadOf } from "./support/timing.ts";
import { SMALL, tokensOf } from "./support/workload.ts";

const PEER = "jax-js, wasm";

/** Measures the peer between Troupe's devices; where it cannot be had, its row says why. */
export async function peersBench(): Promise<Row[]> {
  const { names, missing } = await benchDevices(true);
  await using jax = await openJax("wasm", SMALL);
  const devices = await Promise.all(names.map((name) => openDevice(name)));
  const stages = await Promise.all(devices.map((device) => openBenchStage(device)));
  const losses = await Promise.all(stages.map(({ forwardBackward }) => forwardBackward()));
  const peerLoss = await firstLoss(jax), isThere = typeof peerLoss === "number";
  const cases: Record<string, () => Promise<number | void>> = Object.fromEntries(
    names.map((name, i) => [name, async () => void await stages[i]!.forwardBackward()]),
  );
  if (isThere) cases[PEER] = async () => (await jax.step()).ms;
  const rounds = await interleave(cases, { rounds: 11, isAlone: false });
  for (const device of devices) device.close();
  const tokensPerSecond = (name: string): Row => ({
    name: `${name}: forward and backward`,
    unit: "tokens/s",
    measured: spreadOf(rounds, (ms) => tokensOf(SMALL) / (ms[name]! / 1000)),
  });
  const ours = [...missing, ...names.map(tokensPerSecond)];
  if (!isThere) return [...ours, { name: PEER, unit: "", note: peerLoss }];
  const apart = Math.max(...losses.map((loss) => Math.abs(loss - peerLoss)));
  return [
    ...ours,
    { ...tokensPerSecond(PEER), note: `losses differ by ${apart.toExponential(1)}` },
    ...names.map((name): Row => ({
      name: `${name} ÷ ${PEER}`,
      unit: "×",
      measured: spreadOf(rounds, (ms) => ms[PEER]! / ms[name]!),
    })),
  ];
}
