import assert from "node:assert/strict";
import { modelFields, unet } from "../../../kernels/mod.ts";
import { pictureFixture, SIZES } from "./pictures.ts";
import { testAgainstPytorch } from "./trains_as_pytorch.ts";

testAgainstPytorch("a U-Net", () => pictureFixture("unet"));

Deno.test("a U-Net comes back to the size of pictures of any height and width", () => {
  for (const [height, width] of [[28, 28], [9, 16], [5, 31]] as const) {
    const model = unet({ height, width, channels: 3, layers: 3, hidden: 8 }, 2);
    const [features, targets] = modelFields(model);
    assert.deepEqual(targets!.shape, features!.shape);
  }
});

Deno.test("a U-Net that cannot be is refused", () => {
  for (
    const [sizes, told] of [
      [{ layers: 5 }, "layers must be at most 4 for pictures of 10×10, received 5"],
      [{ hidden: 6 }, "hidden must be divisible by 4 for 3 layers, received 6"],
    ] as const
  ) {
    const message = `Cannot build U-Net: ${told}`;
    assert.throws(() => unet({ ...SIZES, ...sizes }, 2), { name: "RangeError", message });
  }
});
