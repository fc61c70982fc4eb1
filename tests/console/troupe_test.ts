/** Errors of the system and of memory in any command, and files of credentials. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { explainSystemError } from "../../console/terminal.ts";
import { folderTest, namesIn } from "../in_folder.ts";
import { refusal, refusalHere, runHere, TINY, words } from "./command.ts";
import { assertRefusals } from "./refusals.ts";

folderTest("errors of the system name the file and the remedy", async (folder) => {
  await Deno.symlink(join(folder, "loop"), join(folder, "loop"));
  await Deno.writeTextFile(join(folder, "file"), "");
  const places = { FOLDER: folder, LONG: "x".repeat(300) };
  await assertRefusals("system_errors", refusalHere, places);
});

Deno.test("errors of memory, of node:fs and of programs are sentences, others stay", () => {
  const said = (make: () => unknown) => {
    try {
      make();
    } catch (error) {
      return (explainSystemError(error, ["journal", "show", "big"]) as Error).message;
    }
  };
  const command = "deno task troupe journal show big";
  assert.match(said(() => "x".repeat(2 ** 30))!, RegExp(`^Cannot run ${command}: each text and `));
  const told = /^Cannot run .*; name a smaller file or size$/;
  assert.match(said(() => new Uint8Array(2 ** 50))!, told);
  assert.match(said(() => readFileSync("."))!, /^Cannot use .*; name a file$/);
  const spawn = () => new Deno.Command("/nowhere/mpirun").spawn();
  assert.match(said(spawn)!, /^Cannot use \/nowhere\/mpirun: it must be .*, received No such file/);
  const failed = "worker-0 failed: Cannot read /a: b, received No such file (os error 2)";
  for (const text of ["Cannot continue: a, b", "error: a, b", "Invalid record", failed]) {
    assert.equal((explainSystemError(new Error(text), []) as Error).message, text);
  }
  assert.equal(explainSystemError("text", []), "text");
});

folderTest("credentials of hosts are secret, written once into a new folder", async (folder) => {
  const out = join(folder, "creds");
  const create = (listen = "[::1]:4222", name = "run") => {
    const more = ["--hosts", "1", "--listen", listen, "--out", out];
    return runHere(["nats", "creds", "--run-name", name, ...more]);
  };
  const umask = Deno.umask();
  for (const listen of ["::1:4222", "127.0.0.1:65536", "4222"]) {
    assert.match((await create(listen)).stderr, /: --listen must be an address and a port/, listen);
  }
  assert.match((await create(undefined, "x".repeat(65))).stderr, /must be at most 64 letters, /);
  assert.equal((await create()).code, 0);
  Deno.umask(umask);
  assert.deepEqual(await namesIn(out), ["host-1.creds", "leader.creds", "server.conf"]);
  const mode = (await Deno.stat(join(out, "host-1.creds"))).mode ?? 0o600;
  assert.equal(mode & 0o77, 0);
  // A bracket outside quotes begins a list there.
  assert.match(await Deno.readTextFile(join(out, "server.conf")), /^listen: "\[::1\]:4222"$/m);
  const lead =
    words`${TINY} --tokens ${out}/leader.creds --vocab 65536 --steps 1 --out ${folder}/run --runtime nats`;
  assert.match(await refusal(lead), /^Cannot train with --runtime nats: --nats must be given, /);
  const place = words`--nats nats://127.0.0.1:1 --run-name run --nats-creds`;
  const refused = await refusal([...lead, ...place, join(out, "host-1.creds")]);
  assert.match(refused, /: it must be of the leader of the run, received those of host 1$/);
  const again = await create();
  assert.deepEqual([again.code, await namesIn(folder)], [2, ["creds"]]);
});
