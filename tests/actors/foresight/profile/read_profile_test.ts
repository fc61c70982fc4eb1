/** A profile is data of a stranger's: what is wrong with it is told by name. */

import assert from "node:assert/strict";
import {
  type LayerCost,
  parseProfile,
  type Profile,
  PROFILE_BYTES_MAX,
  readProfile,
} from "../../../../actors/foresight/mod.ts";

const layer: LayerCost = {
  kind: "mlp",
  sizes: { hidden: 64, seq: 32 },
  microBatch: 4,
  device: "native",
  precision: "fp32",
  recompute: "none",
  atOnce: 2,
  forwardMs: 1.5,
  backwardMs: 3,
  parameters: 33_088,
  activationBytes: 4096,
  outputBytes: 1024,
  forwardFlops: 1e6,
  backwardFlops: 2e6,
};

const nothing = { ms: 0, msPerMillion: 0 };

const profile: Profile = {
  format: "troupe-profile",
  version: 1,
  source: "stated",
  machine: { name: "two cores", cores: 2 },
  layers: [layer],
  variation: [0.9, 1, 1.2],
  optimizer: nothing,
  reduce: nothing,
  links: { worker: { latencyMs: 0.05 }, process: { latencyMs: 0.1, bytesPerMs: 1e6 } },
  dispatchMs: 0.01,
  closing: { vote: nothing, norm: nothing, end: nothing, stepMs: 0.2 },
  sources: { "layers[0].forwardMs": "a guess" },
  notes: [],
};

/** The text of the profile with something else at a path. */
function withValue(path: readonly (string | number)[], value: unknown): string {
  const copy = structuredClone(profile) as unknown as Record<string | number, unknown>;
  let at = copy;
  for (const name of path.slice(0, -1)) at = at[name] as typeof copy;
  at[path.at(-1)!] = value;
  return JSON.stringify(copy);
}

Deno.test("a profile is read as it was written", () => {
  assert.deepEqual(parseProfile(JSON.stringify(profile)), profile);
});

Deno.test("what is no profile of this version is refused by name", () => {
  const text = JSON.stringify(profile);
  for (
    const [wrong, kind, message] of [
      [text.slice(0, -20), SyntaxError, /must be a profile .* received no whole JSON/],
      ["", SyntaxError, /no whole JSON/],
      ["[]", SyntaxError, /received other JSON/],
      ["{}", SyntaxError, /received other JSON/],
      [withValue(["format"], "troupe-journal"), SyntaxError, /the format "troupe-journal"/],
      [withValue(["format"], "a\u001b[2J"), SyntaxError, /the format "a\\u001b\[2J"/],
      [withValue(["version"], 2), RangeError, /its version must be 1, received 2; troupe profile/],
      [withValue(["version"], "1"), RangeError, /its version must be 1, received "1"/],
      [text.replace('"version":1', '"version":1,"version":1'), SyntaxError, /"version" twice/],
    ] as const
  ) {
    assert.throws(() => parseProfile(wrong), (error: Error) => {
      assert.ok(error instanceof kind, `${error}`);
      assert.match(error.message, message);
      return true;
    });
  }
});

Deno.test("a figure that cannot be one is refused with its path", () => {
  for (
    const [path, value, message] of [
      [
        ["layers", 0, "forwardMs"],
        -1,
        /layers\[0\]\.forwardMs must be a number from 0, received -1/,
      ],
      [["layers", 0, "forwardMs"], null, /layers\[0\]\.forwardMs must be a number from 0/],
      [["layers", 0, "microBatch"], 0.5, /microBatch must be a positive integer, received 0.5/],
      [["layers", 0, "precision"], "fp8", /precision must be one of fp32, fp16, received "fp8"/],
      [["layers", 0, "kind"], "x".repeat(5000), /kind must be a text of at most 2000 characters/],
      [
        ["layers", 0, "forwardMs"],
        1e308,
        /forwardMs must be at most 1000000000000000000, received 1e\+308/,
      ],
      [["layers"], {}, /layers must be an array/],
      [["layers"], [], /layers must have at least one entry, received none/],
      [["links", "worker"], { latencyMs: 1, bytesPerMs: 0 }, /bytesPerMs must be a number above 0/],
      [["links", "worker"], {}, /links\.worker\.latencyMs must be given/],
      [["links"], [], /links must be an object/],
      [["closing", "vote"], undefined, /closing\.vote must be given/],
      [["source"], "guessed", /source must be one of measured, trace, stated/],
      [["notes"], [7], /notes\[0\] must be a text/],
    ] as const
  ) {
    assert.throws(() => parseProfile(withValue(path, value)), (error: Error) => {
      assert.match(error.message, /^Cannot read the profile: /);
      assert.match(error.message, message);
      return true;
    });
  }
  const huge = JSON.stringify(profile).replace("1.5", "1e999");
  assert.throws(() => parseProfile(huge), /forwardMs must be a number from 0, received Infinity/);
});

Deno.test("a file that is none, or too large, is refused before it is read", async () => {
  const path = await Deno.makeTempFile({ suffix: ".json" });
  try {
    await Deno.writeTextFile(path, JSON.stringify(profile));
    assert.deepEqual(readProfile(path), profile);
    await Deno.writeTextFile(path, withValue(["version"], 3));
    assert.throws(() => readProfile(path), {
      name: "RangeError",
      message: `Cannot read ${path}: its version must be 1, received 3; ` +
        `troupe profile --out FILE measures a new one`,
    });
    await Deno.truncate(path, PROFILE_BYTES_MAX + 1);
    assert.throws(() => readProfile(path), /must be a regular file, received \d+ bytes, more than/);
  } finally {
    await Deno.remove(path);
  }
  assert.throws(() => readProfile("/dev/zero"), /must be a regular file, received a device/);
  assert.throws(() => readProfile("nowhere.json"), Deno.errors.NotFound);
});
