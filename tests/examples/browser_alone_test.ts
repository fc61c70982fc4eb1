/** Models in Chromium: the page of examples/browser, and that of the guide to scripts. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { bytesTokenizer } from "../../kernels/mod.ts";
import { bytesTokenizerJson } from "../../kernels/data/tokenizer.ts";
import { assertAccessible, type Page, pageTest } from "../browser.ts";
import { printedHere, ROOT, TINY } from "../console/command.ts";
import { deno, writeFiles } from "../package/packages.ts";
import { loadModel } from "../../actors/run/load_model.ts";
import { trained as trainedHere } from "../actors/runs.ts";

/** Starts a server while `use` works with the address that it prints. */
async function served(
  args: readonly string[],
  use: (url: string) => Promise<void>,
  { cwd = ROOT, stream = "stdout" as "stdout" | "stderr" } = {},
): Promise<void> {
  const server = new Deno.Command(Deno.execPath(), {
    ...{ args: ["run", "-A", ...args], cwd, [stream]: "piped", env: { NO_COLOR: "1" } },
  }).spawn();
  const lines = server[stream].pipeThrough(new TextDecoderStream());
  try {
    for await (const line of lines) {
      const [url] = /http:\/\/\S+/.exec(line) ?? assert.fail(line);
      await use(url);
      break;
    }
  } finally {
    server.kill();
    await server.status;
  }
}

/** Serves the page with a model while `use` looks at it. */
const servedModel = (model: string, use: (url: string) => Promise<void>) =>
  served(["examples/browser/serve.ts", model, "0"], use);

/** Trains a model of a text that it learns by heart, and exports it; returns the paths of both. */
async function trained(folder: string, ...more: readonly string[]) {
  const [text, from, model] = ["text.txt", "run", "gpt.onnx"].map((name) => join(folder, name)) as [
    ...[string, string, string],
  ];
  await Deno.writeTextFile(text, "abcäd".repeat(70));
  const learn = ["--text", text, "--steps", "60", "--lr", "0.03", "--out", from, ...more];
  await printedHere("train", ...TINY, ...learn, "--runtime", "local", "--json");
  await printedHere("export", from, "--format", "onnx", "--out", model);
  return { from, model };
}

async function sampled(page: Page, fields: Readonly<Record<string, string>>): Promise<string> {
  for (const [name, value] of Object.entries(fields)) await page.fill(`[name=${name}]`, value);
  await page.click("button");
  await page.waitForFunction(`document.querySelector("button").textContent === "Sample"`);
  return (await page.textContent("#text"))!;
}

pageTest("the page samples of an exported model what generate samples", async (page, folder) => {
  const { from, model } = await trained(folder);
  await servedModel(model, async (url) => {
    await page.goto(url);
    await page.waitForFunction(`!document.querySelector("button").disabled`);
    const about = await page.textContent("#about");
    assert.equal(about, "GPT-2: layers 1, hidden 16, context 8, tokens bytes");
    await assertAccessible(page);
    const prompt = "abc", tokens = "31";
    const greedy = await sampled(page, { prompt, tokens, temperature: "0" });
    const how = ["--tokens", tokens, "--temperature", "0", "--device", "reference"];
    const printed = await printedHere("generate", "--from", from, "--prompt", prompt, ...how);
    assert.equal(`${greedy}\n`, printed);
    assert.match(greedy, /^(abcäd){5}/, "the model has learnt its text");
    const drawn = await sampled(page, { temperature: "4", seed: "1" });
    assert.notEqual(drawn, greedy);
    assert.equal(await sampled(page, { seed: "1" }), drawn, "a seed has its draws");
    assert.notEqual(await sampled(page, { seed: "2" }), drawn);
    assert.equal(await sampled(page, { topK: "1" }), greedy);
    assert.equal(await sampled(page, { topK: "", topP: "0" }), greedy);
    await page.fill("[name=tokens]", "100000");
    await page.click("button");
    await page.waitForFunction(`document.querySelector("#text").textContent.length > 10`);
    await page.click("button"); // it stops
    await page.waitForFunction(`document.querySelector("button").textContent === "Sample"`);
    assert.ok(bytesTokenizer().encode((await page.textContent("#text"))!).length < 100_000);
  });
});

pageTest("the page reads a tokenizer.json beside the model", async (page, folder) => {
  await Deno.writeTextFile(join(folder, "tokenizer.json"), JSON.stringify(bytesTokenizerJson()));
  const { model } = await trained(folder, "--tokenizer", folder);
  await servedModel(model, async (url) => {
    await page.goto(url);
    await page.waitForFunction(`!document.querySelector("button").disabled`);
    const greedy = await sampled(page, { prompt: "abc", tokens: "21", temperature: "0" });
    assert.equal(greedy, "abcäd".repeat(4));
    assert.match((await page.textContent("#about"))!, /tokens tokenizer\.json$/);
    const spaced = await sampled(page, { prompt: "a , b" });
    assert.match(spaced, /^a , b/, "spaces stay, as in what generate prints");
    const lower = JSON.stringify({ ...bytesTokenizerJson(), normalizer: { type: "Lowercase" } });
    const ids = await page.evaluate(`
        fetch = () => Promise.resolve(new Response(${JSON.stringify(lower)}));
        import("./tokenizers.js")
          .then(({ TOKENIZERS }) => TOKENIZERS["tokenizer.json"]())
          .then(({ encode }) => encode("ΑΣ"))
      `);
    assert.deepEqual(ids, [...bytesTokenizer().encode("ασ")], "with the rules of trainings");
    const missing = await page.evaluate(`
        fetch = () => Promise.resolve(new Response("There is no such file", { status: 404 }));
        import("./tokenizers.js")
          .then(({ TOKENIZERS }) => TOKENIZERS["tokenizer.json"]())
          .catch((error) => error.message)
      `);
    assert.equal(missing, "the tokenizer.json of its run must lie beside it, received none");
  });
});

pageTest("the page refuses a model that it cannot sample, and any file", async (page, folder) => {
  const model = join(folder, "other.onnx");
  await Deno.writeTextFile(model, "no model");
  await servedModel(model, async (url) => {
    await page.goto(url);
    await page.waitForFunction(`document.querySelector("#about").textContent.startsWith("Cannot")`);
    const wanted = "Cannot load the model: it must be a gpt2, received none of Troupe's";
    assert.equal(await page.textContent("#about"), wanted);
    const outside = ["..%2f..%2fdeno.json", "onnxruntime/..%2fpackage.json", "serve.ts"];
    for (const path of [...outside, `huggingface/${model}`]) { // two slashes
      const { status, body } = await fetch(new URL(path, url));
      await body?.cancel();
      assert.equal(status, 404, path);
    }
  });
});

const CONFIG = `--config=${join(ROOT, "deno.json")}`;

/** Returns the scripts of the guide by name. */
async function scripts(): Promise<Record<string, string>> {
  const text = await Deno.readTextFile(join(ROOT, "docs/script.md"));
  const blocks = text.matchAll(/^```ts ignore\n\/\/ (\w+\.ts)\n(.*?)^```/gms);
  return Object.fromEntries(Array.from(blocks, ([, name, code]) => [name!, code!]));
}

/** Serves the files of a folder on this machine. */
function folderServer(folder: string) {
  const types = { html: "text/html", js: "text/javascript" } as Readonly<Record<string, string>>;
  return Deno.serve({ hostname: "127.0.0.1", port: 0, onListen() {} }, async (request) => {
    const name = new URL(request.url).pathname.slice(1) || "index.html";
    const body = await Deno.readFile(join(folder, name)).catch(() => null);
    const type = types[name.split(".").at(-1)!] ?? "application/octet-stream";
    return new Response(body, { status: body ? 200 : 404, headers: { "content-type": type } });
  });
}

/** Makes sure that two predictions are the same within a tolerance. */
function assertNear(received: ArrayLike<number>, expected: Float32Array, tolerance: number): void {
  assert.equal(received.length, expected.length);
  const most = Math.max(...expected.map((one, i) => Math.abs(one - received[i]!)));
  assert.ok(most <= tolerance, `${most}`);
}

type Row = Readonly<Record<"petal" | "sepal", number>>;

pageTest("the guide's server and page predict as the training graph does", async (page, folder) => {
  await writeFiles(folder, {
    ...await scripts(),
    "index.html": `<!DOCTYPE html><link rel="icon" href="data:,"><body></body>
        <script type="module" src="page.js"></script>`,
  });
  const { flowers } = await import(`file://${folder}/model.ts`);
  const features = Float32Array.from({ length: 8 }, (_, i) => Math.sin(i));
  const data = {
    ...{ samples: 4, sizes: {} },
    *from() {
      for (;;) yield { features, species: Int32Array.of(0, 1, 2, 0) };
    },
  };
  const out = join(folder, "runs", "petals"),
    how = { device: "reference", workers: 1 } as const;
  await trainedHere({ model: flowers, data, steps: 3, out, runtime: "local", ...how });
  using model = await loadModel(flowers, out, { device: "reference" });
  const expectedOf = (rows: readonly Row[]) =>
    model.predict({ features: Float32Array.from(rows.flatMap((one) => [one.petal, one.sepal])) });

  const code = await Deno.readTextFile(join(folder, "server.ts"));
  await Deno.writeTextFile(join(folder, "server.ts"), code.replace("port: 8000", "port: 0"));
  await served(["--no-lock", "--no-check", CONFIG, "server.ts"], async (url) => {
    const ask = (rows: unknown) => fetch(url, { method: "POST", body: JSON.stringify(rows) });
    const asked = Array.from(
      { length: 8 },
      (_, i): Row[] => Array.from({ length: i % 3 + 1 }, (_, j) => ({ petal: i, sepal: j })),
    );
    const refused = ask("no rows");
    const answers = asked.map(async (rows) => await (await ask(rows)).json());
    for (const [i, answer] of (await Promise.all(answers)).entries()) {
      assertNear(answer, await expectedOf(asked[i]!), 1e-6);
    }
    const { status, body } = await refused;
    await body?.cancel();
    assert.equal(status, 400);
  }, { cwd: folder, stream: "stderr" });

  const wasm = "ort-wasm-simd-threaded.wasm";
  await Deno.copyFile(new URL(import.meta.resolve(`onnxruntime-web/${wasm}`)), join(folder, wasm));
  await Deno.writeTextFile(
    join(folder, "page.ts"),
    "\nObject.assign(globalThis, { flowers, loadModel });\n",
    { append: true },
  );
  await deno(folder, ["bundle", "--platform=browser", CONFIG, "page.ts", "-o", "page.js"]);
  await using files = folderServer(folder);
  await page.goto(`http://127.0.0.1:${files.addr.port}/`);
  await page.waitForFunction(`document.body.textContent.trim() !== ""`);
  const scores = (await page.textContent("body"))!.trim().split(" ").map(Number);
  const expected = await expectedOf([{ petal: 1.5, sepal: 5 }]);
  assertNear(scores, expected, 1e-5);
  const step = "runs/petals/step-00000003";
  for (const one of [step, `/${step}/`, `${step}/model.safetensors`]) {
    const again = await page.evaluate<number[]>(`loadModel(flowers, ${JSON.stringify(one)})
          .then((model) => model.predict({ features: Float32Array.of(1.5, 5) }))
          .then((scores) => [...scores])`);
    assertNear(again, expected, 1e-5);
  }
});
