/** T5s on the GPU: values of a stage that are masks, too. */

import { RECOMPUTE_POLICIES } from "../../../kernels/mod.ts";
import { atDepth } from "../../depth.ts";
import { gpuTest, keepGpuOpen } from "../../gpu.ts";
import { testT5Gradients } from "./trains_as_pytorch.ts";

keepGpuOpen();

testT5Gradients(
  "webgpu",
  gpuTest,
  ["v1_1"],
  atDepth(RECOMPUTE_POLICIES.slice(1, 2), RECOMPUTE_POLICIES),
);
