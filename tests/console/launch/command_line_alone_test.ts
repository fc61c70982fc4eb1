/** Command lines of `troupe launch`, with fake launchers on PATH that only print their names. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { nextRunFolder } from "../../../actors/run_folder/read.ts";
import { launchCommand } from "../../../console/launch/launch.ts";
import { folderTest } from "../../in_folder.ts";
import { Capture, ROOT } from "../command.ts";
import { assertRefusals } from "../refusals.ts";

const VERSIONS = { mpich: "HYDRA build details:", openmpi: "mpirun (Open MPI) 4.1.4" } as const;

/** Makes a folder for PATH with a fake `mpirun` of an MPI, and no other launcher. */
async function pathWith(folder: string, mpi?: keyof typeof VERSIONS, script = "") {
  const bin = join(folder, mpi ?? "none");
  await Deno.mkdir(bin);
  const text = `[ "$1" = --version ] && { echo '${mpi && VERSIONS[mpi]}'; exit; }\n${script}`;
  if (mpi) await Deno.writeTextFile(join(bin, "mpirun"), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  return bin;
}

/** Launches in this process with a PATH; `heard` gets each printed text. */
async function launch(
  path: string,
  args: readonly string[],
  { signal = new AbortController().signal, heard = (_: string) => {} } = {},
): Promise<{ readonly code: number | Error; readonly stdout: string }> {
  using stdout = new Capture(Deno.stdout, heard);
  using _stderr = new Capture(Deno.stderr);
  const PATH = Deno.env.get("PATH")!;
  let isBegun = false;
  Deno.env.set("PATH", path);
  try {
    const code = await launchCommand([...args], { signal, begin: () => isBegun = true })
      .catch((error: Error) => error);
    // Flags are refused before anything runs.
    if (code instanceof Error && !isBegun) assert.match(code.message, /^Cannot [^\n]+$/);
    return { code, stdout: stdout.text };
  } finally {
    Deno.env.set("PATH", PATH);
  }
}

/** The command line of a job, up to the command of the ranks. */
async function headOf(path: string, args: readonly string[]): Promise<string> {
  const { code, stdout } = await launch(path, ["--print", ...args]);
  assert.equal(code, 0);
  const [, head] = /^(.*?) \S+ run -A \S+ train .*\n$/.exec(stdout)!;
  return head!;
}

const job = (...flags: string[]) => ["--", "train", "--schedule", "1f1b", ...flags];

folderTest("each MPI gets a command line with the ranks of the flags", async (folder) => {
  const hosts = join(folder, "hosts"), named = join(folder, "named");
  await Deno.writeTextFile(hosts, "node1 slots=2\nnode2:2\n");
  await Deno.writeTextFile(named, "node1.a:1\nnode1.b:1\n");
  const network = ["--hosts", hosts, "--interface", "eth0", "--remote-shell", "/opt/rsh"];
  const mpich = await pathWith(folder, "mpich"), openmpi = await pathWith(folder, "openmpi");
  const doubled = ["--", "train", "--schedule", "chimera-wave", "--workers", "2"];
  const most = "mpirun -hosts node1:2,node2:2 -n 4 -iface eth0 -launcher-exec /opt/rsh";
  const heads: readonly [string, string[], string][] = [
    [mpich, job("--workers", "4"), "mpirun -n 4"],
    [mpich, job("--workers", "2", "--replicas", "3"), "mpirun -n 6"],
    [mpich, job("--workers", "4", "--map", "0,1,1,2"), "mpirun -n 3"],
    [mpich, doubled, "mpirun -n 4"],
    [mpich, [...network, ...job("--workers", "4")], `UCX_NET_DEVICES=eth0 ${most}`],
    [openmpi, job("--workers", "4"), "mpirun --host localhost:4 -n 4 --bind-to none"],
  ];
  for (const [path, args, head] of heads) assert.equal(await headOf(path, args), head);
  const said =
    /^mpirun --host node1\.a:1,node1\.b:1 -n 2 --bind-to none --mca orte_keep_fqdn_hostnames 1\b/;
  assert.match(await headOf(openmpi, ["--hosts", named, ...job("--workers", "2")]), said);
  const onHosts = await headOf(openmpi, [...network, ...job("--workers", "8")]);
  const told =
    /^UCX_NET_DEVICES=eth0 mpirun --host node1:4,node2:4 -n 8 --bind-to none --oversubscribe --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --mca plm_rsh_agent \/opt\/rsh /;
  assert.match(onHosts, told);
  assert.match(onHosts, / -x UCX_NET_DEVICES\b/);
  const { stdout } = await launch(mpich, ["--print", "--interface", "eth0", ...job()]);
  assert.match(stdout, / --mpi-interface eth0/);
  // A run without --out gets a new folder, which --print does not make.
  const [, out] = / --runtime mpi --out (runs\/gpt-\d+) --mpi-interface eth0\n$/.exec(stdout)!;
  await assert.rejects(Deno.stat(join(ROOT, out!)), Deno.errors.NotFound);
});

folderTest("a job that cannot be launched is refused in one sentence", async (folder) => {
  const hosts = join(folder, "hosts"), used = join(folder, "used");
  await Deno.writeTextFile(hosts, "node1\nnode 2\n");
  await Deno.mkdir(join(used, "step-00000004"), { recursive: true });
  const paths = { mpich: await pathWith(folder, "mpich"), none: await pathWith(folder) };
  await assertRefusals("launch", async ([mpi, ...args]) => {
    const { code, stdout } = await launch(paths[mpi as keyof typeof paths], ["--print", ...args]);
    assert.ok(code instanceof Error, `${args}`);
    assert.equal(stdout, "");
    return code.message;
  }, { FOLDER: folder });
  // A job that cannot start, and a script that cannot be written, leave no run folder.
  const next = nextRunFolder("mlp");
  for (const [path, flag] of [[paths.none, "--slurm"], [paths.mpich, "--launcher=srun"]] as const) {
    const { code } = await launch(path, [flag, ...job("--model", "mlp")]);
    assert.match(`${code}`, /^TypeError: Cannot launch: .* must be installed, /);
  }
  assert.equal(nextRunFolder("mlp"), next);
});

/** A fake launcher of Open MPI that runs a script. */
const scripted = async (folder: string, script: string) =>
  `${await pathWith(folder, "openmpi", script)}:${Deno.env.get("PATH")}`;

folderTest("a command that always fails is restarted --max-restarts times", async (folder) => {
  const mpirun = await scripted(folder, "while [ $1 != sh ]; do shift; done\nexec $@");
  const out = ["--out", join(folder, "out")];
  const flags = ["--ranks", "1", ...out, "--max-restarts", "1", "--", "sh", "-c", "exit"];
  const { code } = await launch(mpirun, flags);
  const said =
    /^Error: Cannot restart the job: it failed 2 times .* exit code 0; there is no check/;
  assert.match(`${code}`, said);
});

folderTest("Ctrl-C ends a launcher immediately if no rank has started", async (folder) => {
  const ended = join(folder, "ended"), script = `trap "touch '${ended}'; exit 1" TERM`;
  const path = await scripted(folder, `${script}\necho begun\nsleep 15 >/dev/null 2>&1 &\nwait`);
  const control = new AbortController(), { signal } = control;
  const heard = (text: string) => text.includes("begun") && control.abort();
  const args = job("--out", join(folder, "out"));
  const { code, stdout } = await launch(path, args, { signal, heard });
  assert.deepEqual([code, stdout], [130, "begun\n"]);
  assert.ok((await Deno.stat(ended)).isFile);
});
