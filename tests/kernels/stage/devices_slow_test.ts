/** Stages on every device that an isolate may open. */

import { atDepth } from "../../depth.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { PRECISIONS } from "../../../kernels/mod.ts";
import { assertTrains, testPytorch } from "./pytorch.ts";
import { sharedDevices } from "./stage_runs.ts";
import { testFrozen, testLengths, testSteps } from "./suite.ts";

const open = sharedDevices(ISOLATE_DEVICES);

for (const name of ISOLATE_DEVICES) {
  const device = () => open(name);
  testPytorch(name, device);
  testFrozen(name, device);
  testLengths(name, device);
  for (const precision of PRECISIONS) testSteps(name, device, precision);
}

const STEPS = atDepth(10, 30);

Deno.test(`${STEPS} steps of a tied and clipped GPT-2 on three stages have PyTorch's losses and norms`, () =>
  assertTrains(open("native"), "gpt2_tied", 3, STEPS));
