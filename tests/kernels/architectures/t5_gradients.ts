/** The gradients of T5s on any device, against PyTorch's. */

import {
  compileModel,
  countTargets,
  type DeviceName,
  type Model,
  RECOMPUTE_POLICIES,
  withAliases,
} from "../../../kernels/mod.ts";
import type { RegisterTest } from "../../devices.ts";
import { assertClose, withStage } from "../stage/pytorch.ts";
import { readT5, T5_VERSIONS } from "./t5_fixture.ts";

/** The gradient of a tied parameter is that of all who hold it. */
function joinTies(gradients: Map<string, Float32Array>, { ties = [] }: Model): void {
  for (const [canonical, alias] of ties) {
    const sum = gradients.get(canonical)!, own = gradients.get(alias)!;
    own.forEach((value, i) => sum[i]! += value);
    gradients.delete(alias);
  }
}

/** Registers the tests of a device that it computes the gradients that PyTorch does. */
export function testT5Gradients(
  device: DeviceName,
  test: RegisterTest = Deno.test,
  versions: readonly (typeof T5_VERSIONS[number])[] = T5_VERSIONS,
): void {
  for (const version of versions) {
    test(`the gradient of every parameter of T5 ${version} on ${device} is PyTorch's within 2e-6, whatever is computed again`, async () => {
      const { model, weights, gradients, batches, microBatches } = await readT5(version);
      const step = batches.slice(0, microBatches);
      const state = withAliases({ weights, moments: new Map() }, model.ties!);
      const own = new Map(state.weights);
      const scale = 1 / step.reduce((sum, batch) => sum + countTargets(batch, "targets"), 0);
      for (const [i, recompute] of RECOMPUTE_POLICIES.entries()) {
        const kind = i === 0 ? "whole" : "split", program = compileModel(model, recompute);
        await withStage(
          device,
          program,
          own,
          kind,
          async (stage) => {
            for (const [m, fields] of step.entries()) {
              await stage.forward(m, undefined, fields);
              for (const part of kind === "whole" ? ["B"] as const : ["I", "W"] as const) {
                await stage.backward(m, part, undefined, scale);
              }
            }
            const received = await stage.gradients();
            joinTies(received, model);
            assertClose(received, gradients);
          },
        );
      }
    });
  }
}
