/** Stages on the GPU: what is tested of other devices, in FP32. */

import { gpuTest, keepGpuOpen } from "../../gpu.ts";
import { testGeneration } from "../generation/generation.ts";
import { testLengths } from "../layers/lengths.ts";
import { testFp32Limits, testGradientNorms } from "../optimizer/gradient_norms.ts";
import { testOptimizer } from "../optimizer/optimizer.ts";
import { testFrozen } from "./frozen.ts";
import { testOffload } from "./offload.ts";
import { testPlannedMemory } from "./planned_memory.ts";
import { testPytorch } from "./pytorch.ts";

keepGpuOpen();

testPytorch("webgpu", gpuTest);
testOptimizer("webgpu", gpuTest);
testGradientNorms("webgpu", "fp32", gpuTest);
testFp32Limits("webgpu", gpuTest);
testFrozen("webgpu", gpuTest);
testOffload("webgpu", "fp32", gpuTest);
testLengths("webgpu", gpuTest);
testGeneration("webgpu", gpuTest);
testPlannedMemory("webgpu", gpuTest);
