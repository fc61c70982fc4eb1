import { openNative } from "../../../kernels/devices/native/native.ts";
import { openWasm } from "../../../kernels/devices/wasm/wasm.ts";
import { testOperators } from "./operators.ts";
import { testWindows } from "./windows.ts";

testOperators("native", () => openNative());
testOperators("wasm", () => openWasm());

testWindows("native", () => openNative());
testWindows("wasm", () => openWasm());
