/** Stages on the GPU: the tests of other devices, in FP32. */

import { gpuTest, hasSwiftShader } from "../../gpu.ts";
import { testGeneration } from "../generation/generation.ts";
import { testPytorch } from "./pytorch.ts";
import { sharedDevices } from "./stage_runs.ts";
import { testFrozen, testPlannedMemory, testSteps } from "./suite.ts";

// Shaders that were compiled for one test serve the others, and compiling takes most of the time.
const open = sharedDevices(hasSwiftShader ? ["webgpu"] : []), gpu = () => open("webgpu");

testPytorch("webgpu", gpu, gpuTest);
testSteps("webgpu", gpu, "fp32", gpuTest);
testFrozen("webgpu", gpu, gpuTest);
testGeneration("webgpu", gpuTest);
testPlannedMemory("webgpu", gpu, gpuTest);
