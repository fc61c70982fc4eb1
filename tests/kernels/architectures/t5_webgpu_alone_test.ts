/** T5s on the GPU: values of a stage that are masks, too. */

import { gpuTest, keepGpuOpen } from "../../gpu.ts";
import { testT5Gradients } from "./t5_gradients.ts";

keepGpuOpen();

testT5Gradients("webgpu", gpuTest, ["v1_1"]);
