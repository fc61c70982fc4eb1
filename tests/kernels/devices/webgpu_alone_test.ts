import { openWebgpu } from "../../../kernels/devices/webgpu/webgpu.ts";
import { gpuTest, keepGpuOpen } from "../../gpu.ts";
import { testImages } from "../graph/pytorch_images.ts";
import { testContract } from "./contract.ts";
import { testOperators } from "./operators.ts";
import { testBits, testGradients } from "./gradients.ts";

keepGpuOpen();

testContract("webgpu", () => openWebgpu(), gpuTest);

// SwiftShader cannot compute in FP16, and the provider has no kernel for some; a few random sizes of
// each operation, as each is compiled.
const isLeftOut = (name: string) =>
  /f16|^Cast$|^MaxPool with places$|^Mod|^Transpose of i64$/.test(name);
testOperators("webgpu", () => openWebgpu(), 3, isLeftOut, gpuTest);

testGradients("webgpu", () => openWebgpu(), isLeftOut, gpuTest);

testImages("webgpu", () => openWebgpu(), gpuTest);

testBits("webgpu", () => openWebgpu(), gpuTest);
