import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { Ring } from "../../../actors/runtime/mailbox/ring.ts";

Deno.test("a ring does what an array does, whatever is pushed, shifted and removed", () => {
  const operation = fc.oneof(
    { weight: 3, arbitrary: fc.record({ push: fc.nat(5) }) },
    { weight: 2, arbitrary: fc.constant("shift" as const) },
    { weight: 1, arbitrary: fc.record({ remove: fc.nat(5) }) },
  );
  fc.assert(fc.property(fc.array(operation, { size: "large" }), (operations) => {
    const ring = new Ring<number>(), model: number[] = [];
    for (const one of operations) {
      if (one === "shift") assert.equal(ring.shift(), model.shift());
      else if ("push" in one) {
        ring.push(one.push);
        model.push(one.push);
      } else {
        const index = model.indexOf(one.remove);
        assert.equal(ring.remove(one.remove), index >= 0);
        if (index >= 0) model.splice(index, 1);
      }
      assert.equal(ring.length, model.length);
      assert.deepEqual([...ring], model);
      assert.deepEqual([ring.at(0), ring.at(model.length)], [model[0], undefined]);
    }
  }));
});
