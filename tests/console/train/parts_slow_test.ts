import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { hashModule, readCheckpoint } from "../../../actors/mod.ts";
import { folderTest } from "../../in_folder.ts";
import {
  bitsOf,
  ENVIRONMENT,
  inFolder,
  jsonLines,
  type Outcome,
  refusal,
  ROOT,
  runHere,
  someTokens,
  TINY,
  trainHere,
  writeTokens,
} from "../command.ts";
import { forgeConfig } from "../forged.ts";

/** Models, data and optimizers by name and by module: what takes their place, and what is refused. */

const KERNELS = pathToFileURL(join(ROOT, "kernels", "mod.ts")).href;

const ACTORS = pathToFileURL(join(ROOT, "actors", "mod.ts")).href;

/** A model of one's own, which is the GPT with one block more than is asked for. */
const DEEPER = `import { gpt2 } from "${KERNELS}";
export const model = { name: "deeper", version: "1", sizes: ["vocab"], data: "sotu",
  build: ({ microBatch, data, layers, ...sizes }) =>
    gpt2({ ...sizes, layers: layers + 1, vocab: data.vocab }, microBatch) };`;

/** Data of one's own: sixteen tokens of each sample, the same each time. */
const COUNTING = `export const data = { name: "counting", version: "1",
  open: ({ microBatch, seq }) => ({ sizes: { vocab: 256 }, batches: function* () {
    for (;;) {
      const ids = Int32Array.from({ length: microBatch * seq }, (_, i) => i);
      yield { ids, targets: ids.map((id) => id + 1) };
    }
  }() }) };`;

/** Writes a module, and gives its URL. */
async function write(folder: string, name: string, text: string): Promise<string> {
  await Deno.writeTextFile(join(folder, name), text);
  return pathToFileURL(join(folder, name)).href;
}

/** Trains in a folder with a registry of its own. */
async function trainIn(cwd: string, args: readonly string[], registry?: unknown): Promise<Outcome> {
  if (registry) await Deno.writeTextFile(join(cwd, "troupe.json"), JSON.stringify(registry));
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-lock", join(ROOT, "cli.ts"), "train", ...args],
    cwd,
    env: ENVIRONMENT,
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

const STEP = ["--steps", "1", "--runtime", "local"];

Deno.test("a name of troupe.json takes the place of Troupe's own, and that is told; a module's hash is", () =>
  inFolder(async (folder) => {
    const from = await write(folder, "deeper.ts", DEEPER), { integrity } = await hashModule(from);
    const tokens = await writeTokens(folder, someTokens(100));
    const train = [...TINY, ...STEP, "--json", "--tokens", tokens];
    const actors = { gpt: { from: "./deeper.ts", kind: "model", integrity } };
    const named = await trainIn(folder, train, { actors });
    assert.equal(named.code, 0, named.stderr);
    assert.equal(
      named.stderr,
      `model gpt: ${from} with hash ${integrity}, in place of Troupe's own\n`,
    );
    const { parts, weightsHash } = jsonLines(named.stdout).at(-1)!;
    assert.deepEqual(parts, { model: { name: "gpt", from, integrity } });

    const relative = await trainIn(folder, [...train, "--model", "./deeper.ts"]);
    assert.equal(relative.stderr, `model ./deeper.ts: ${from} with hash ${integrity}\n`);
    const { last } = await trainHere([...train, "--layers", "2"]);
    for (const other of [jsonLines(relative.stdout).at(-1)!, last]) {
      assert.equal(other.weightsHash, weightsHash);
    }

    await Deno.writeTextFile(join(folder, "deeper.ts"), `console.log("run");${DEEPER}`);
    const changed = await trainIn(folder, train);
    assert.deepEqual([changed.code, changed.stdout], [2, ""]);
    assert.match(
      changed.stderr,
      /^Cannot use gpt as model: .* must have the hash that the registry notes, sha256-.*, received sha256-.*\n$/,
    );
  }));

Deno.test("what is no such part is refused in one sentence, before anything is written", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(100));
    const model = [...TINY, ...STEP, "--out", join(folder, "out")];
    const train = [...model, "--tokens", tokens];
    const named = (name: string) => `export const model = { name: "${name}", version: "1" };`;
    const modules: readonly [kind: string, text: string, RegExp][] = [
      ["model", "export const other = 1;", /must export "model", received other$/],
      ["model", "export const model = 1;", /as model: it must be a record, received number$/],
      [
        "model",
        named("../up"),
        /its name must be letters, digits, _, \. and -, received "\.\.\/up"$/,
      ],
      ["model", named("mine"), /build must be a function, received undefined$/],
      [
        "model",
        'throw new Error("a\\nb");',
        /^Cannot use .* as model: file:.*\.ts must run, received Error: a/,
      ],
      ["model", "let 1;", /^Cannot /],
      ["optimizer", "export const model = 1;", /must export "optimizer", received model$/],
      ["data", `export const data = { name: "d", version: "1" };`, /open must be a function/],
    ];
    for (const [i, [kind, text, reason]] of modules.entries()) {
      const module = await write(folder, `${i}.ts`, text), run = kind === "data" ? model : train;
      assert.match(await refusal([...run, `--${kind}`, module]), reason, text);
    }
    const still = DEEPER.replace("...sizes,", "...sizes, dropout: 0,");
    const dropping = ["--model", await write(folder, "still.ts", still), "--dropout", "0.1"];
    assert.match(
      await refusal([...train, ...dropping]),
      /: dropout must be 0, as no layer of the model has one, received 0\.1$/,
    );
    assert.match(
      await refusal([...train, "--model", join(folder, "none.ts")]),
      /^Cannot fetch file:/,
    );
    assert.match(await refusal([...train, "--model", "gtp"]), /did you mean gpt\?$/);
    assert.match(
      await refusal([...train, "--data", await write(folder, "d.ts", COUNTING)]),
      /the data must come from one place, received --data and --tokens$/,
    );
    assert.ok(!Array.from(Deno.readDirSync(folder), ({ name }) => name).includes("out"));
  }));

Deno.test("data of one's own trains, and is refused where it does not fit the model", () =>
  inFolder(async (folder) => {
    const data = await write(folder, "counting.ts", COUNTING);
    const { last } = await trainHere([...TINY, ...STEP, "--data", data]);
    assert.equal(last.steps, 1);
    assert.match(
      await refusal([...TINY, "--data", data, "--model", "mlp"]),
      /^Cannot train mlp on counting: the data must say its inputs and classes, received vocab$/,
    );
    assert.match(
      await refusal([...TINY, "--data", data, "--eval-every", "1"]),
      /^Cannot evaluate on counting: .* as it holds nothing out, received 1$/,
    );
    const short = await write(folder, "short.ts", COUNTING.replace("* seq", "* (seq - 1)"));
    assert.equal(
      await refusal([...TINY, "--data", short]),
      'Cannot train gpt on counting: its micro-batches must have the field "ids", Int32Array of [16] (16 elements), received Int32Array of 14',
    );
    const others = await write(folder, "others.ts", COUNTING.replace("targets:", "labels:"));
    assert.match(
      await refusal([...TINY, "--data", others]),
      /must have the field "targets", Int32Array of \[16\] \(16 elements\), received ids, labels$/,
    );
  }));

Deno.test("an optimizer of one's own is settings of AdamW or SGD", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(100));
    const train = [...TINY, "--steps", "2", "--runtime", "local", "--tokens", tokens];
    const optimizer = await write(
      folder,
      "heavy.ts",
      `export const optimizer = { name: "heavy",
      version: "1", options: () => ({ kind: "sgd", momentum: 0.5, weightDecay: 0 }) };`,
    );
    const bits = async (...more: string[]) => bitsOf((await trainHere([...train, ...more])).lines);
    const own = await bits("--optimizer", optimizer), adamw = await bits();
    const flags = await bits("--optimizer", "sgd", "--momentum", "0.5", "--weight-decay", "0");
    assert.deepEqual(own, flags);
    assert.notDeepEqual(own.at(-1), adamw.at(-1));
  }));

Deno.test("a checkpoint imports nothing: its module is named again, with the same hash", () =>
  inFolder(async (folder) => {
    const model = await write(folder, "deeper.ts", DEEPER), out = join(folder, "out");
    const tokens = await writeTokens(folder, someTokens(100)), own = ["--tokens", tokens];
    await trainHere([...TINY, ...STEP, ...own, "--model", model, "--out", out]);
    const step = join(out, "step-00000001"), resume = ["--resume", step, ...own, "--steps", "2"];
    const cannot = `Cannot resume from ${step}: --model must name the module that its run used`;
    assert.ok(
      (await refusal(resume)).startsWith(`${cannot}, as no file imports one, received none`),
    );
    assert.match(
      await refusal([...resume, "--model", "gpt"]),
      /received "gpt", which comes with Tr/,
    );
    const copy = await write(folder, "copy.ts", `${DEEPER}\n// another`);
    assert.match(
      await refusal([...resume, "--model", copy]),
      /with hash sha.*, received "file:.*sha/,
    );
    const config = ["--config", join(step, "config.json"), ...own];
    assert.match(
      await refusal(config),
      /^Cannot repeat the run of .*: --model must name the module/,
    );
    const again = await trainHere([...config, "--model", model]);
    assert.equal(again.last.steps, 1);
    const { last } = await trainHere([...resume, "--model", model, "--runtime", "local"]);
    assert.equal(last.steps, 2);

    // What a stranger's checkpoint says of modules is text.
    const imported = join(folder, "imported");
    const evil = await write(folder, "evil.ts", `Deno.writeTextFileSync("${imported}", "")`);
    for (
      const parts of [{ model: { name: evil, from: evil, integrity: "sha256-" } }, { model: 7 }]
    ) {
      await forgeConfig(step, (forged) => void (forged.parts = parts));
      assert.match(
        await refusal(resume),
        /--model must name the module|its model must have a name/,
      );
      assert.match(await refusal([...resume, "--model", model]), /^Cannot resume from /);
    }
    await forgeConfig(step, (forged) => {
      delete forged.parts;
      forged.flags.model = evil;
    });
    assert.match(
      await refusal(resume),
      /--model of .*: it must be one of gpt, .*, received "file:/,
    );
    await assert.rejects(Deno.stat(imported), Deno.errors.NotFound);
  }));

Deno.test("a journal imports nothing: the module of its run is named again, and the run replays", () =>
  inFolder(async (folder) => {
    const model = await write(folder, "deeper.ts", DEEPER), journal = join(folder, "run.jsonl");
    const tokens = await writeTokens(folder, someTokens(100)), own = ["--tokens", tokens];
    await trainHere([...TINY, ...STEP, ...own, "--model", model, "--journal", journal]);
    const unnamed = await runHere(["replay", journal, ...own]);
    assert.equal(unnamed.code, 2);
    assert.match(
      unnamed.stderr,
      /^Cannot replay: --model must name the file .* no journal opens one/,
    );
    const named = await runHere(["replay", journal, ...own, "--model", model]);
    assert.equal(named.code, 0, named.stderr);
    assert.match(named.stdout, /\d+ steps as recorded/);
  }));

Deno.test("a supervisor of one's own takes the place of Troupe's, and its workers of theirs: the same bits", () =>
  inFolder(async (folder) => {
    const seen = join(folder, "seen");
    const supervisor = await write(
      folder,
      "counting.ts",
      `import { PIPELINE_SUPERVISOR, PIPELINE_WORKER } from "${ACTORS}";
      const seen = (what) => Deno.writeTextFileSync("${seen}", what + "\\n", { append: true });
      export const worker = { ...PIPELINE_WORKER, name: "seen",
        create: (ctx, init) => (seen(ctx.self.id), PIPELINE_WORKER.create(ctx, init)) };
      export const supervisor = { ...PIPELINE_SUPERVISOR, name: "counting", create(ctx, init) {
        const worker = { from: import.meta.url, export: "worker" };
        const handlers = PIPELINE_SUPERVISOR.create(ctx, { ...init, worker });
        return { ...handlers, RunStep: (step) => (seen("step"), handlers.RunStep(step)) };
      } };`,
    );
    const tokens = await writeTokens(folder, someTokens(100));
    const train = [...TINY, "--workers", "2", "--steps", "2", "--tokens", tokens];
    const own = await trainHere([...train, "--runtime", "workers", "--supervisor", supervisor]);
    const troupes = await trainHere(train);
    assert.deepEqual(bitsOf(own.lines), bitsOf(troupes.lines));
    const lines = (await Deno.readTextFile(seen)).trimEnd().split("\n").sort();
    assert.deepEqual(lines, ["step", "step", "worker-0", "worker-1"]);
    const { supervisor: told } = own.last.parts as Record<string, { name: string }>;
    assert.equal(told!.name, supervisor);

    const old = await write(
      folder,
      "old.ts",
      `export const supervisor = { name: "old", protocol: 1, messages: {}, create: () => ({}) };`,
    );
    for (
      const [more, reason] of [
        [
          ["--supervisor", old],
          /^Cannot use .* as supervisor: its protocol must be version \d+, received 1$/,
        ],
        [
          ["--supervisor", supervisor, "--journal", join(folder, "journal")],
          /^Cannot write a journal: supervisor and workers must be Troupe's own, /,
        ],
        [
          ["--supervisor", supervisor, "--runtime", "serial"],
          /the runtime must have actors, received serial$/,
        ],
      ] as const
    ) assert.match(await refusal([...train, ...more]), reason);
  }));

/** Data of one's own in a module: it is begun where a run goes on, with the state that it had. */

/** Tokens that each follow from the one before; what was begun and how much was made is written down. */
const WALK = `
const log = new URL("./log.txt", import.meta.url);
export const data = {
  name: "walk",
  version: "1",
  open: ({ microBatch, seq }) => {
    let at = 1;
    const draw = () => Int32Array.from({ length: microBatch * seq }, () => (at = at * 48271 % 0x7fffffff) % 64);
    return {
      sizes: { vocab: 64 },
      batches: {
        *from(microBatch, state = 1) {
          at = state;
          Deno.writeTextFileSync(log, "from " + microBatch + "\\n", { append: true });
          for (;;) {
            Deno.writeTextFileSync(log, "made\\n", { append: true });
            yield { ids: draw(), targets: draw() };
          }
        },
        state: () => at,
      },
    };
  },
};
`;

folderTest(
  "a module's data with a state goes on from a checkpoint with the same bits, and makes nothing again",
  async (folder) => {
    const path = join(folder, "walk.ts"), out = join(folder, "out"), log = join(folder, "log.txt");
    await Deno.writeTextFile(path, WALK);
    const train = [...TINY, "--data", path];
    const whole = await trainHere([...train, "--steps", "4"]);
    await trainHere([...train, "--steps", "2", "--out", out]);
    const { config } = (await readCheckpoint(out))!;
    assert.equal((config["progress"] as { data: { microBatches: number } }).data.microBatches, 4);
    await Deno.remove(log);
    const on = await trainHere([...train, "--resume", out, "--steps", "4"]);
    assert.deepEqual(bitsOf(on.lines), bitsOf(whole.lines, 3));
    // A look at the first one says whether data and model fit.
    assert.equal(await Deno.readTextFile(log), "from 0\nmade\nfrom 4\n" + "made\n".repeat(4));
  },
);

folderTest("a state that no checkpoint can keep is refused at the door", async (folder) => {
  const path = join(folder, "walk.ts");
  await Deno.writeTextFile(path, WALK.replace("state: () => at", "state: () => draw"));
  const { code, stdout, stderr } = await runHere([
    "train",
    ...TINY,
    "--data",
    path,
    "--steps",
    "1",
    "--json",
  ]);
  assert.deepEqual([code, stdout], [2, ""], stderr);
  assert.match(
    stderr,
    /\nCannot keep the state of the data: it must be something that JSON can say, received function\n$/,
  );
});
