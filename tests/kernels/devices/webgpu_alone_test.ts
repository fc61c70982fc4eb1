import { openWebgpu } from "../../../kernels/devices/webgpu/webgpu.ts";
import { testContract } from "./contract.ts";
import { testOperators } from "./operators.ts";

testContract("webgpu", () => openWebgpu());
testOperators("webgpu", () => openWebgpu(), 3, (operation) => operation.includes("f16"));
