/** What `troupe launch` would run, with launchers that only say who they are. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { launchedBy } from "../../../actors/runtime/transports/mpi/mpi_abi.ts";
import { folderTest } from "../../in_folder.ts";
import { type Outcome, ROOT, runTroupe } from "../command.ts";
import { Running } from "../running.ts";

const VERSIONS = { mpich: "HYDRA build details:", openmpi: "mpirun (Open MPI) 4.1.4" } as const;

/** A folder for PATH with `mpirun` of an MPI, and nothing else that launches. */
async function pathWith(folder: string, mpi?: keyof typeof VERSIONS): Promise<string> {
  const bin = join(folder, mpi ?? "none");
  await Deno.mkdir(bin);
  if (mpi) await writeProgram(join(bin, "mpirun"), `echo '${VERSIONS[mpi]}'`);
  return bin;
}

async function writeProgram(path: string, text: string): Promise<void> {
  await Deno.writeTextFile(path, `#!/bin/sh\n${text}\n`, { mode: 0o755 });
}

/** What it prints of a job, up to the command of the ranks. */
async function headOf(path: string, args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await launch(path, ["--print", ...args]);
  assert.deepEqual([code, stderr], [0, ""]);
  const [, head] = /^(.*?) \S+ run -A .*cli\.ts train .*\n$/.exec(stdout)!;
  return head!;
}

const launch = (path: string, args: readonly string[]): Promise<Outcome> =>
  runTroupe(["launch", ...args], { PATH: `${path}:/usr/bin/nothing` });

const job = (...flags: string[]) => ["--", "train", "--schedule", "1f1b", ...flags];

folderTest(
  "each MPI gets its own command line, with the ranks that train's flags ask for",
  async (folder) => {
    const hosts = join(folder, "hosts");
    await Deno.writeTextFile(hosts, "# two of them\nnode1 slots=2\n\nnode2:2\n");
    const network = ["--hosts", hosts, "--interface", "eth0", "--remote-shell", "/opt/rsh"];
    const mpich = await pathWith(folder, "mpich"), openmpi = await pathWith(folder, "openmpi");
    assert.equal(await headOf(mpich, job("--workers", "4")), "mpirun -n 4");
    assert.equal(await headOf(mpich, job("--workers", "2", "--replicas", "3")), "mpirun -n 6");
    assert.equal(await headOf(mpich, job("--workers", "4", "--map", "0,1,1,2")), "mpirun -n 3");
    const doubled = ["--", "train", "--schedule", "chimera-wave", "--workers", "2"];
    assert.equal(await headOf(mpich, doubled), "mpirun -n 4");
    assert.equal(
      await headOf(mpich, [...network, ...job("--workers", "4")]),
      "UCX_NET_DEVICES=eth0 mpirun -hosts node1:2,node2:2 -n 4 -iface eth0 -launcher-exec /opt/rsh",
    );
    assert.equal(
      await headOf(openmpi, job("--workers", "4")),
      "mpirun --host localhost:4 -n 4 --bind-to none",
    );
    const named = join(folder, "named");
    await Deno.writeTextFile(named, "node1.a:1\nnode1.b:1\n");
    assert.match(
      await headOf(openmpi, ["--hosts", named, ...job("--workers", "2")]),
      / --host node1\.a:1,node1\.b:1 .* --mca orte_keep_fqdn_hostnames 1 /,
    );
    const onHosts = await headOf(openmpi, [...network, ...job("--workers", "8")]);
    assert.match(
      onHosts,
      /^UCX_NET_DEVICES=eth0 mpirun --host node1:4,node2:4 -n 8 --bind-to none --oversubscribe --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --mca plm_rsh_agent \/opt\/rsh /,
    );
    for (const name of ["NO_COLOR", "UCX_NET_DEVICES"]) {
      assert.match(
        onHosts,
        new RegExp(` -x ${name}\\b`),
      );
    }
  },
);

folderTest(
  "a run whose folder nobody names gets a new one with a number; a line that is shown takes none",
  async (folder) => {
    const mpich = await pathWith(folder, "mpich");
    const { code, stdout, stderr } = await launch(mpich, ["--print", ...job("--workers", "2")]);
    assert.equal(code, 0, stderr);
    const [, out] = / --out (runs\/gpt-\d+)\n$/.exec(stdout)!;
    await assert.rejects(Deno.stat(join(ROOT, out!)), Deno.errors.NotFound);
  },
);

folderTest(
  "what cannot be launched is told in one sentence, before anything runs",
  async (folder) => {
    const hosts = join(folder, "hosts");
    await Deno.writeTextFile(hosts, "node1\nnode 2\n");
    const option = join(folder, "option");
    await Deno.writeTextFile(option, "-oProxyCommand:2\n");
    const mpich = await pathWith(folder, "mpich"), none = await pathWith(folder);
    for (
      const [path, args, sentence] of [
        [none, job(), /MPI must be installed.*received none of mpirun/],
        [mpich, ["--mpi", "openmpi", ...job()], /Open MPI must be installed.*openmpi-bin/],
        [mpich, [], /a command must follow --/],
        [mpich, ["train"], /must stand behind --, received train/],
        [mpich, job("--runtime", "local"), /--runtime must be mpi, received local/],
        [mpich, job("--wokers", "2"), /did you mean --workers/],
        [mpich, ["--ranks", "3", ...job("--workers", "2")], /--ranks must be 2.*received 3/],
        [mpich, ["--hosts", hosts, ...job()], /line 2 must be a host.*received "node 2"/],
        [
          mpich,
          ["--hosts", option, ...job()],
          /line 1 must be a host.*received "-oProxyCommand:2"/,
        ],
        [mpich, ["--", "my_program"], /--ranks must say how many ranks run my_program/],
        [mpich, ["--ranks", "2", "--", "my_program"], /--out must say where/],
      ] as const
    ) {
      const { code, stdout, stderr } = await launch(path, args);
      assert.deepEqual([code, stdout], [2, ""], stderr);
      assert.match(stderr, sentence);
      assert.equal(stderr.trimEnd().split("\n").length, 1, stderr);
    }
  },
);

/** A launcher that is Open MPI's by name, and does what a script says. */
async function scripted(folder: string, script: string): Promise<string> {
  const bin = await pathWith(folder, "openmpi");
  const text = `[ "$1" = --version ] && { echo '${VERSIONS.openmpi}'; exit; }\n${script}`;
  await writeProgram(join(bin, "mpirun"), text);
  return `${bin}:${Deno.env.get("PATH")}`;
}

folderTest("a launcher that starts no rank is asked once", async (folder) => {
  const tries = join(folder, "tries");
  const mpirun = await scripted(folder, `echo x >> '${tries}'\nexit 1`);
  const { code, stderr } = await launch(
    mpirun,
    job("--workers", "2", "--out", join(folder, "out")),
  );
  assert.equal(code, 1);
  assert.match(
    stderr,
    /^Cannot launch: the launcher must start the ranks, received its exit code 1/m,
  );
  assert.equal(await Deno.readTextFile(tries), "x\n");
});

folderTest("a launch whose words nobody takes ends its job", async (folder) => {
  const PATH = await scripted(folder, "exec timeout 15 yes"), out = join(folder, "out");
  const words = [Deno.execPath(), ...["run", "-A", "--no-check", "cli.ts", "launch"]];
  const { stdout, stderr } = await new Deno.Command("bash", {
    args: ["-c", '"$@" | head -1; echo ${PIPESTATUS[0]}', "-", ...words, ...job("--out", out)],
    env: { PATH, NO_COLOR: "1" },
  }).output();
  assert.equal(new TextDecoder().decode(stdout), "y\n1\n");
  assert.match(new TextDecoder().decode(stderr), /^Broken pipe/m);
});

folderTest("Ctrl-C ends a launcher at once of which no rank has begun", async (folder) => {
  const ended = join(folder, "ended"), script = `trap "touch '${ended}'; exit 1" TERM`;
  const PATH = await scripted(folder, `${script}\necho begun\nsleep 15 >/dev/null 2>&1 &\nwait`);
  const args = [
    "run",
    "-A",
    "--no-check",
    "cli.ts",
    "launch",
    ...job("--out", join(folder, "out")),
  ];
  const running = new Running(args, false, { PATH });
  await running.printed("stdout", /begun/);
  running.interrupt("group");
  assert.equal((await running.end()).code, 130);
  assert.ok((await Deno.stat(ended)).isFile);
});

Deno.test("srun's ranks know who they are, also within a job of Slurm that mpirun's run in", () => {
  const slurm = { SLURM_PROCID: "3", SLURM_STEP_NUM_TASKS: "8" };
  const of = (env: Record<string, string>) => launchedBy((name) => env[name]);
  assert.deepEqual(of(slurm), { abi: "mpich", rank: 3, size: 8 });
  assert.deepEqual(of({ ...slurm, PMIX_RANK: "3" }), { abi: "openmpi", rank: 3, size: 8 });
  assert.deepEqual(of({ ...slurm, PMI_RANK: "1", PMI_SIZE: "2" }), {
    abi: "mpich",
    rank: 1,
    size: 2,
  });
  assert.deepEqual(
    of({ ...slurm, PMIX_RANK: "1", OMPI_COMM_WORLD_RANK: "1", OMPI_COMM_WORLD_SIZE: "2" }),
    { abi: "openmpi", rank: 1, size: 2 },
  );
  // How many share their cores, as each launcher says it.
  const sharing = (env: Record<string, string>) => of({ ...slurm, ...env })!.sharing;
  assert.equal(sharing({ SLURM_STEP_TASKS_PER_NODE: "2(x3),1" }), 2);
  assert.equal(sharing({ MPI_LOCALNRANKS: "3" }), 3);
  const ofFour = { OMPI_COMM_WORLD_LOCAL_SIZE: "4" };
  assert.equal(sharing(ofFour), 4);
  assert.equal(sharing({ ...ofFour, OMPI_MCA_orte_bound_at_launch: "1" }), 1);
  // The shell of a job of Slurm is no rank.
  assert.equal(of({ SLURM_PROCID: "0", SLURM_NTASKS: "8" }), undefined);
});
