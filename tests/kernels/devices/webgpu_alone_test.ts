import { openWebgpu } from "../../../kernels/devices/webgpu/webgpu.ts";
import { hasSwiftShader } from "../../gpu.ts";
import { testContract } from "./contract.ts";
import { testOperators } from "./operators.ts";

if (hasSwiftShader) testContract("webgpu", () => openWebgpu());
if (hasSwiftShader) {
  testOperators(
    "webgpu",
    () => openWebgpu(),
    3,
    (operation) => operation.includes("f16"),
  );
}
