/**
 * The flags of `troupe launch`.
 *
 * @module
 */

import { type CommandSyntax, COMMON_FLAGS } from "../flags/command_syntax.ts";
import type { FlagValues } from "../flags/flag.ts";

/** Every flag of `troupe launch`. */
export const LAUNCH_FLAGS = {
  hosts: {
    kind: "path",
    value: "FILE",
    otherwise: "this one",
    help: "hosts, one a line, such as node1, node1:4 or node1 slots=4",
  },
  "max-restarts": {
    kind: "integer",
    minimum: 0,
    default: 3,
    help: "failures without a new checkpoint that the job outlives",
  },
  print: { kind: "switch", help: "show what would be run, and run nothing" },
  slurm: { kind: "switch", help: "write a script for sbatch instead, to FILE or standard output" },
  mpi: {
    kind: "choice",
    choices: ["mpich", "openmpi"],
    otherwise: "that of mpirun",
    help: "which MPI",
  },
  launcher: {
    kind: "choice",
    choices: ["mpirun", "srun"],
    otherwise: "srun within a job of Slurm, else mpirun",
    help: "what starts the ranks",
  },
  interface: {
    kind: "text",
    value: "NAME",
    help: "the network device between hosts, such as eth0",
  },
  "remote-shell": {
    kind: "path",
    value: "PROGRAM",
    otherwise: "ssh",
    help: "what mpirun starts processes on other hosts with",
  },
  ranks: {
    kind: "integer",
    otherwise: "as the flags of train say",
    help: "ranks, for a command of your own",
  },
  out: {
    kind: "path",
    value: "DIR",
    otherwise: "as the flags of train say",
    help: "where a command of your own writes its checkpoints",
  },
  ...COMMON_FLAGS,
} as const;

/** The values of the flags of `troupe launch`. */
export type LaunchFlags = FlagValues<typeof LAUNCH_FLAGS>;

/** The declaration of `troupe launch`. */
export const LAUNCH_SYNTAX: CommandSyntax = {
  name: "launch",
  summary: "trains on the ranks of MPI, and starts the job again when one dies",
  usage: ["[flags] -- train [flags of train]", "[flags] -- COMMAND [arguments]"],
  about: [
    "Works out how many ranks the flags of train ask for, writes the command line of the MPI that",
    "is installed, and runs it. When a rank dies, MPI ends the others; the job is started again and",
    "goes on from its newest checkpoint, until finished.json beside that says that it has come to its",
    "end. Hosts share the folder of the checkpoints, and have Deno and Troupe at the same paths.",
    "",
    'COMMAND is one of your own that calls train({ runtime: "mpi" }), such as deno run -A mine.ts,',
    "with --ranks, and --out for the folder of its checkpoints; it goes on by itself from what",
    "readCheckpoint() finds there.",
  ],
  groups: [{ flags: LAUNCH_FLAGS }],
  notes: [
    "--slurm may be followed by FILE. On Ctrl-C the job saves a checkpoint and ends.",
    "",
    "Exit codes: 0 done; 1 a job that failed too often or never began; 2 bad input; 130 a signal.",
  ],
};
