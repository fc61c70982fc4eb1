import { openWebgpu } from "../../../kernels/devices/webgpu/webgpu.ts";
import { gpuTest, keepGpuOpen } from "../../gpu.ts";
import { testImages } from "../graph/pytorch_images.ts";
import { testContract } from "./contract.ts";
import { testOperators } from "./operators.ts";
import { testWindows } from "./windows.ts";

keepGpuOpen();

testContract("webgpu", () => openWebgpu(), gpuTest);

// SwiftShader cannot compute in FP16; a few random sizes of each operation, as each is compiled.
testOperators("webgpu", () => openWebgpu(), 3, (name) => name.includes("f16"), gpuTest);

testWindows("webgpu", () => openWebgpu(), gpuTest);

testImages("webgpu", () => openWebgpu(), gpuTest);
