import { openNative } from "../../../kernels/devices/cpu/native.ts";
import { openReference } from "../../../kernels/devices/reference.ts";
import { openWasm } from "../../../kernels/devices/cpu/wasm.ts";
import { atDepth } from "../../depth.ts";
import { testBits, testGradients, testOperators } from "./operators.ts";
import { preparing } from "./webgpu/preparing.ts";

const NATIVE = { name: "native", open: () => openNative() };
const WASM = { name: "wasm", open: openWasm, runs: atDepth(2, 20) };
const REWRITING = { name: "rewriting", open: async () => preparing(await openReference()) };

for (const tested of [NATIVE, WASM, REWRITING]) {
  testOperators(tested);
  testGradients(tested);
}

testBits(NATIVE);
const THREADS = { name: "native (2 threads)", open: () => openNative({ threads: 2 }) };
testBits({ ...THREADS, cases: atDepth(2, Infinity) });
testBits(WASM);
