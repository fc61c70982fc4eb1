import { ISOLATE_DEVICES } from "../../devices.ts";
import { testPytorch, testRecomputation } from "./pytorch.ts";

for (const name of ISOLATE_DEVICES) {
  testPytorch(name);
  testRecomputation(name);
}
