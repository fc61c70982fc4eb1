import { openNative } from "../../../kernels/devices/native/native.ts";
import { openWasm } from "../../../kernels/devices/wasm/wasm.ts";
import { testOperators } from "./operators.ts";

testOperators("native", () => openNative());
testOperators("wasm", () => openWasm());
