/** Stages on the GPU. */

import { gpuTest, keepGpuOpen } from "../../gpu.ts";
import { testPytorch } from "./pytorch.ts";

keepGpuOpen();

testPytorch("webgpu", gpuTest);
