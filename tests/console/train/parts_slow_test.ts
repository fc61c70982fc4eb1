import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { hashModule } from "../../../actors/sandbox/modules.ts";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import {
  bitsOf,
  jsonLines,
  type Outcome,
  printedHere,
  refusal,
  refusedHere,
  refuses,
  ROOT,
  runHere,
  runProgram,
  someTokens,
  TINY,
  trainHere,
  words,
  writeTokens,
} from "../command.ts";
import { forgeConfig } from "../forged.ts";
import { assertRefusals } from "../refusals.ts";

/** Models, data and optimizers by name and by module. */

const KERNELS = pathToFileURL(join(ROOT, "kernels", "mod.ts")).href;

const ACTORS = pathToFileURL(join(ROOT, "actors", "mod.ts")).href;

/** A custom model: the GPT with one more block than requested. */
const DEEPER = `import { gpt2 } from "${KERNELS}";
export const model = { name: "deeper", version: "1", sizes: ["vocab"], data: "sotu",
  build: ({ microBatch, data, layers, ...sizes }) =>
    gpt2({ ...sizes, layers: layers + 1, vocab: data.vocab }, microBatch) };`;

/** Custom data: the same sixteen tokens in each sample. */
const COUNTING = `export const data = { name: "counting", version: "1",
  open: ({ microBatch, seq }) => ({ sizes: { vocab: 256 }, batches: function* () {
    for (;;) {
      const ids = Int32Array.from({ length: microBatch * seq }, (_, i) => i);
      yield { ids, targets: ids.map((id) => id + 1) };
    }
  }() }) };`;

/** Writes a module; returns its URL. */
async function write(folder: string, name: string, text: string): Promise<string> {
  await Deno.writeTextFile(join(folder, name), text);
  return pathToFileURL(join(folder, name)).href;
}

/** Trains in a folder with a separate registry. */
async function trainIn(cwd: string, args: readonly string[], registry?: unknown): Promise<Outcome> {
  if (registry) await Deno.writeTextFile(join(cwd, "troupe.json"), JSON.stringify(registry));
  return await runProgram(
    Deno.execPath(),
    words`run -A --no-lock ${join(ROOT, "cli.ts")} train ${args}`,
    { cwd },
  );
}

const STEP = words`--steps 1 --runtime local`;

folderTest("a name in troupe.json replaces a built-in one, and is reported", async (folder) => {
  const from = await write(folder, "deeper.ts", DEEPER), { integrity } = await hashModule(from);
  const tokens = await writeTokens(folder, someTokens(100));
  const train = [...TINY, ...STEP, "--json", "--tokens", tokens];
  const actors = { gpt: { from: "./deeper.ts", kind: "model", integrity } };
  const named = await trainIn(folder, train, { actors });
  assert.equal(named.code, 0, named.stderr);
  const told = `model gpt: ${from} with hash ${integrity}, in place of Troupe's own\n`;
  assert.equal(named.stderr, told);
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
  const said =
    /^Cannot use gpt as model: .* must have the hash in the registry, sha256-.*, received sha256-.*; if you trust them, add them again with --replace\n$/;
  assert.match(changed.stderr, said);
});

folderTest("an invalid component is refused before anything is written", async (folder) => {
  const tokens = ["--tokens", await writeTokens(folder, someTokens(100))],
    places = { FOLDER: folder };
  const model = words`${TINY} ${STEP} --out ${join(folder, "out")}`;
  let written = 0;
  // Each command is a kind of component and the text of a module.
  await assertRefusals("no_parts", async ([kind, ...text]) => {
    const module = await write(folder, `${written++}.ts`, text.join(" "));
    const sentence = await refusal(
      words`${model} ${kind === "data" ? [] : tokens} --${kind!} ${module}`,
    );
    return sentence.replace(/(must run|must be there), received.*/s, "$1, received …");
  }, places);
  const still = DEEPER.replace("...sizes,", "...sizes, dropout: 0,");
  for (const [name, text] of Object.entries({ still, counting: COUNTING })) {
    await write(folder, `${name}.ts`, text);
  }
  await assertRefusals("parts", (words) => refusal([...model, ...tokens, ...words]), places);
  assert.ok(!(await namesIn(folder)).includes("out"));
});

folderTest("a user's data trains, and is refused if it does not fit", async (folder) => {
  const data = await write(folder, "counting.ts", COUNTING);
  assert.equal((await trainHere(words`${TINY} ${STEP} --data ${data}`)).last.steps, 1);
  await write(folder, "short.ts", COUNTING.replace("* seq", "* (seq - 1)"));
  await write(folder, "others.ts", COUNTING.replace("targets:", "labels:"));
  for (const [name, heldOut] of [["held", "[{}]"], ["none_held", "() => undefined"]] as const) {
    await write(folder, `${name}.ts`, COUNTING.replace("sizes:", `heldOut: ${heldOut}, sizes:`));
  }
  const throwing = COUNTING.replace("for (;;)", 'throw new Error("the shelf is gone"); for (;;)');
  await write(folder, "throwing.ts", throwing);
  const refuse = (words: string[]) => refusal([...TINY, ...words]);
  await assertRefusals("data_of_users", refuse, { FOLDER: folder });
});

folderTest("a user's optimizer is a set of options of AdamW or SGD", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(100));
  const train = [...TINY, "--steps", "2", "--runtime", "local", "--tokens", tokens];
  const optimizer = await write(
    folder,
    "heavy.ts",
    `export const optimizer = { name: "heavy", version: "1",
      options: () => ({ kind: "sgd", momentum: 0.5, weightDecay: 0 }) };`,
  );
  const bits = async (...more: string[]) => bitsOf((await trainHere([...train, ...more])).lines);
  const own = await bits("--optimizer", optimizer), adamw = await bits();
  const flags = await bits("--optimizer", "sgd", "--momentum", "0.5", "--weight-decay", "0");
  assert.deepEqual(own, flags);
  assert.notDeepEqual(own.at(-1), adamw.at(-1));
});

folderTest("a checkpoint imports nothing: its module must be named again", async (folder) => {
  const model = await write(folder, "deeper.ts", DEEPER), out = join(folder, "out");
  const tokens = await writeTokens(folder, someTokens(100)), own = ["--tokens", tokens];
  await trainHere([...TINY, ...STEP, ...own, "--model", model, "--out", out]);
  const step = join(out, "step-00000001"), resume = words`--resume ${step} ${own} --steps 2`;
  await write(folder, "copy.ts", `${DEEPER}\n// another`);
  const places = { FOLDER: folder };
  await assertRefusals("named_modules", (words) => refusal([...words, ...own]), places);
  const config = words`--config ${join(step, "config.json")} ${own} --model ${model}`;
  assert.equal((await trainHere(config)).last.steps, 1);
  const { last } = await trainHere(words`${resume} --model ${model} --runtime local`);
  assert.equal(last.steps, 2);

  // The modules of an untrusted checkpoint are only text.
  const imported = join(folder, "imported");
  const evil = await write(folder, "evil.ts", `Deno.writeTextFileSync("${imported}", "")`);
  for (const part of [{ name: evil, from: evil, integrity: "sha256-" }, 7]) {
    await forgeConfig(step, (forged) => void (forged.parts = { model: part }));
    await refuses(resume, /--model must name the module|its model must have a name/);
    await refuses([...resume, "--model", model], /^Cannot resume from /);
  }
  await forgeConfig(step, (forged) => {
    delete forged.parts;
    forged.flags.model = evil;
  });
  await refuses(resume, /--model of .*: it must be one of gpt, .*, received "file:/);
  await assert.rejects(Deno.stat(imported), Deno.errors.NotFound);
});

folderTest("a journal imports nothing: its run replays with its module named", async (folder) => {
  const model = await write(folder, "deeper.ts", DEEPER), journal = join(folder, "run.jsonl");
  const tokens = await writeTokens(folder, someTokens(100)), own = ["--tokens", tokens];
  await trainHere([...TINY, ...STEP, ...own, "--model", model, "--journal", journal]);
  const replay = words`replay ${journal} ${own}`;
  const refusal = /^Cannot replay: --model must name the file .* because a journal opens no file/;
  await refusedHere(replay, refusal);
  assert.match(await printedHere(...replay, "--model", model), /\d+ steps as recorded/);
});

folderTest("a user's supervisor and workers train the same bits", async (folder) => {
  const seen = join(folder, "seen");
  const supervisor = await write(
    folder,
    "counting.ts",
    `import { packageActor, PIPELINE_SUPERVISOR, PIPELINE_WORKER } from "${ACTORS}";
      const seen = (what) => Deno.writeTextFileSync("${seen}", what + "\\n", { append: true });
      export const worker = { ...PIPELINE_WORKER, name: "seen",
        create: (ctx, init) => (seen(ctx.self.id), PIPELINE_WORKER.create(ctx, init)) };
      export const supervisor = { ...PIPELINE_SUPERVISOR, name: "counting", create(ctx, init) {
        const from = import.meta.url;
        const worker = packageActor({ from, export: "worker", permissions: "inherit" });
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

  const old = { name: "old", protocol: 1, messages: {} };
  const text = `export const supervisor = { ...${JSON.stringify(old)}, create: () => ({}) };`;
  await write(folder, "old.ts", text);
  const refuse = (words: string[]) => refusal([...train, ...words]);
  await assertRefusals("supervisors", refuse, { FOLDER: folder });
});

/** A user's data in a module: a resumed run starts it at its step, with its saved state. */

/** Tokens that each depend on the one before; starts and micro-batches are logged. */
const WALK = `
const log = (what) =>
  Deno.writeTextFileSync(new URL("./log.txt", import.meta.url), what + "\\n", { append: true });
export const data = { name: "walk", version: "1", open: ({ microBatch, seq }) => {
  let at = 1;
  const draw = () => Int32Array.from({ length: microBatch * seq }, () => (at = at * 48271 % 0x7fffffff) % 64);
  return { sizes: { vocab: 64 }, batches: {
    *from(microBatch, state = 1) {
      at = state;
      log("from " + microBatch);
      for (;;) {
        log("made");
        yield { ids: draw(), targets: draw() };
      }
    },
    state: () => at,
  } };
} };`;

folderTest("data with a state resumes without repeating micro-batches", async (folder) => {
  const path = await write(folder, "walk.ts", WALK), out = join(folder, "out");
  const train = [...TINY, "--data", path], log = join(folder, "log.txt");
  const whole = await trainHere([...train, "--steps", "4"]);
  await trainHere([...train, "--steps", "2", "--out", out]);
  const { config } = (await readCheckpoint(out))!;
  assert.equal((config["progress"] as { data: { microBatches: number } }).data.microBatches, 4);
  await Deno.remove(log);
  const on = await trainHere([...train, "--resume", out, "--steps", "4"]);
  assert.deepEqual(bitsOf(on.lines), bitsOf(whole.lines, 3));
  // The first micro-batch is read to check that data and model fit.
  assert.equal(await Deno.readTextFile(log), "from 0\nmade\nfrom 4\n" + "made\n".repeat(4));
});

folderTest("a state that no checkpoint can keep is refused", async (folder) => {
  const path = await write(folder, "walk.ts", WALK.replace("state: () => at", "state: () => draw"));
  const args = words`train ${TINY} --data ${path} --steps 1 --json`;
  const { code, stdout, stderr } = await runHere(args);
  assert.deepEqual([code, stdout], [2, ""], stderr);
  const must = "Cannot keep the state of the data: it must be representable as JSON";
  assert.ok(stderr.endsWith(`\n${must}, received function\n`), stderr);
});
