import assert from "node:assert/strict";
import {
  ENVIRONMENT,
  inFolder,
  ROOT,
  runTrain,
  someTokens,
  TINY,
  writeTokens,
} from "../../console/command.ts";

const NEEDED = ["--allow-run", "--allow-read", "--allow-write", "--allow-net"];

/** Runs a program that has a process, with these permissions. */
async function run(flags: readonly string[]): Promise<{ stdout: string; stderr: string }> {
  const output = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--no-prompt", ...flags, "tests/actors/runtime/permissions_program.ts"],
    cwd: ROOT,
    env: ENVIRONMENT,
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  return { stdout: decoder.decode(output.stdout), stderr: decoder.decode(output.stderr) };
}

for (
  const flags of [
    ["-A"],
    NEEDED,
    [...NEEDED, "--allow-env", "--allow-sys"],
    [...NEEDED, "--allow-ffi", "--allow-import"],
    ["-A", "--deny-ffi"],
    ["-A", "--deny-env", "--deny-sys", "--deny-import"],
  ]
) {
  Deno.test(`a process has the permissions of its program: ${flags.join(" ")}`, async () => {
    const { stdout, stderr } = await run(flags);
    const [own, child] = JSON.parse(stdout || assert.fail(stderr));
    assert.deepEqual(child, own);
  });
}

for (
  const [flags, received] of [
    [["-A", "--deny-read=LICENSE"], "read denied in part"],
    [["-A", "--ignore-read=LICENSE"], "read denied in part"],
    [["-A", "--deny-write=LICENSE"], "write denied in part"],
    [["-A", "--deny-net"], "net denied"],
    [["-A", "--deny-net=192.0.2.1"], "net denied in part"],
    [["-A", "--deny-run=ls"], "run denied in part"],
    [["-A", "--deny-env=HOME"], "env denied in part"],
    [["-A", "--deny-sys=hostname"], "sys denied in part"],
    [["-A", "--deny-ffi=/lib"], "ffi denied in part"],
    [["-A", "--deny-import=example.com"], "import denied in part"],
    [[...NEEDED.slice(1), `--allow-run=${Deno.execPath()}`], "run not granted as a whole"],
    [[...NEEDED.filter((flag) => flag !== "--allow-read"), "--allow-read=."], "read not granted"],
    [["-A", "--deny-write=LICENSE", "--deny-env=HOME"], "write denied in part, env denied in part"],
  ] as const
) {
  Deno.test(`a process is refused to a program with ${flags.join(" ")}`, async () => {
    const { stdout, stderr } = await run(flags);
    assert.equal(stdout, "");
    assert.match(stderr, /NotCapable: Cannot start a process: it gets the permissions of this /);
    assert.ok(stderr.includes(`received ${received}`), stderr);
  });
}

Deno.test("a run whose processes would read what it may not is refused before it begins", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(600)), out = `${folder}/out`;
    const train = [...TINY, "--steps", "1", "--tokens", tokens, "--out", out];
    const { code, stdout, stderr } = await runTrain([...train, "--isolation", "process"], [
      "--deny-read=LICENSE",
    ]);
    assert.deepEqual({ code, stdout }, { code: 2, stdout: "" });
    assert.match(stderr, /^Cannot start a process: [^\n]+, received read denied in part\n$/);
    await assert.rejects(Deno.stat(out), Deno.errors.NotFound);
  }));
