import { ISOLATE_DEVICES } from "../../devices.ts";
import { testPytorch } from "./pytorch.ts";

for (const name of ISOLATE_DEVICES) testPytorch(name);
