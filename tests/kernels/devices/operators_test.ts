import { openNative } from "../../../kernels/devices/native/native.ts";
import { openWasm } from "../../../kernels/devices/wasm/wasm.ts";
import { testOperators } from "./operators.ts";
import { testBits, testGradients } from "./gradients.ts";

testOperators("native", () => openNative());
testOperators("wasm", () => openWasm());

testGradients("native", () => openNative());
testGradients("wasm", () => openWasm());

testBits("native", () => openNative());
testBits("native (2 threads)", () => openNative({ threads: 2 }));
testBits("wasm", () => openWasm());
