import { openDevice } from "../../../kernels/mod.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { testImages } from "./pytorch_images.ts";

for (const name of ISOLATE_DEVICES) testImages(name, () => openDevice(name));
