import assert from "node:assert/strict";
import { type SystemOptions } from "../../../actors/runtime/mod.ts";
import { createSystem } from "../../../actors/transports/system.ts";
import { runContract } from "./contract.ts";

runContract({ isolate: "local" });

Deno.test("a system is refused options that cannot be served", () => {
  const module = "data:text/javascript,", unnamed = { name: "", open() {} };
  const wrong: [unknown, RegExp][] = [
    [null, /TypeError: .*its options must be a record, received null/],
    [{ seed: NaN }, /RangeError: Cannot create a system: seed must be an integer, received NaN/],
    [{ seed: "1" }, /RangeError: .*seed must be an integer, received 1/],
    [{ stopGraceMs: -1 }, /RangeError: .*stopGraceMs must be a number of 0 or more, received -1/],
    [{ stopGraceMs: Infinity }, /RangeError: .*stopGraceMs must be .*received Infinity/],
    [{ choose: 1 }, /TypeError: .*choose must be a function, received number/],
    [{ now: {} }, /TypeError: .*now must be a function, received object/],
    [{ onDeadLetter: "log" }, /TypeError: .*onDeadLetter must be a function, received string/],
    [{ observer: () => {} }, /TypeError: .*observer must have the absolute URL of a module/],
    [{ observer: { module: "./a.ts", export: "a" } }, /TypeError: .*absolute URL of a module/],
    [{ transport: () => {} }, /TypeError: .*transport must be one, or several, .*function$/],
    [{ transport: [unnamed] }, /RangeError: .*name of a transport must be unused/],
    [{ transport: { ...unnamed, name: "local" } }, /RangeError: .*must be unused, received local$/],
    [{ observer: { module } }, /TypeError: .*the export of observer must be a string/],
  ];
  for (const [options, error] of wrong) {
    assert.throws(() => createSystem(options as SystemOptions), error);
  }
});
