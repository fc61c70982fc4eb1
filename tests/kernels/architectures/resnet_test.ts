import assert from "node:assert/strict";
import { resnet } from "../../../kernels/mod.ts";
import { pictureFixture, SIZES } from "./pictures.ts";
import { testAgainstPytorch } from "./trains_as_pytorch.ts";

testAgainstPytorch("a residual network", () => pictureFixture("resnet"));

Deno.test("a residual network that cannot be is refused", () => {
  for (
    const [sizes, told] of [
      [{ layers: 0 }, "layers must be a positive integer, received 0"],
      [{ layers: 5 }, "layers must be at most 4 for pictures of 10×10, received 5"],
      [{ height: 4 }, "layers must be at most 2 for pictures of 4×10, received 3"],
      [{ hidden: 18 }, "hidden must be divisible by 4 for 3 layers, received 18"],
      [{ classes: 0 }, "classes must be a positive integer, received 0"],
      [{ width: 2.5 }, "width must be a positive integer, received 2.5"],
    ] as const
  ) {
    const message = `Cannot build ResNet: ${told}`;
    assert.throws(() => resnet({ ...SIZES, ...sizes }, 2), { name: "RangeError", message });
  }
});
