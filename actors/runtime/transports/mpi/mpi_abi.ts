/**
 * The two binary interfaces of MPI: that of MPICH (Intel MPI, MVAPICH, Cray) and that of Open MPI.
 *
 * The functions are the same; handles and constants are not. MPICH's handles are 32-bit integers with
 * values of their own, Open MPI's are pointers to objects, which it gives for the integers of its
 * Fortran interface.
 *
 * @module
 */

/** What a library is called by the runtime packages of Linux systems. */
export const LIBRARIES = { mpich: "libmpich.so.12", openmpi: "libmpi.so.40" } as const;

/** The packages of Debian that bring them. */
export const PACKAGES = { mpich: "libmpich12", openmpi: "libopenmpi3" } as const;

/** What people call who is behind it. */
export const NAMES = { mpich: "MPICH", openmpi: "Open MPI" } as const;

/** An interface. */
export type AbiName = keyof typeof LIBRARIES;

/** The type of handles in foreign calls. */
export const HANDLE_TYPES = { mpich: "i32", openmpi: "pointer" } as const;

/** A handle. */
export type MpiHandle = number | Deno.PointerValue;

/** Bytes of a handle, and so of a request. */
export const HANDLE_BYTES = { mpich: 4, openmpi: 8 } as const;

/** The color of a rank that wants no communicator: the same in both. */
export const NO_COLOR = -32766;

/** The handles that are used. */
export interface Handles {
  readonly world: MpiHandle;
  readonly bytes: MpiHandle;
  readonly floats: MpiHandle;
  readonly sum: MpiHandle;
  readonly errorsReturn: MpiHandle;
  readonly ignoredStatus: Deno.PointerValue;
  /** What a rank gives where its values and the sums have one place. */
  readonly inPlace: Deno.PointerValue;
}

/** MPICH's, as its header has them. */
export const MPICH_HANDLES: Handles = {
  world: 0x44000000,
  bytes: 0x4c00010d,
  floats: 0x4c00040a,
  sum: 0x58000003,
  errorsReturn: 0x54000001,
  // Only where they are asked for: to make a pointer is for those who may call libraries.
  get ignoredStatus() {
    return Deno.UnsafePointer.create(1n);
  },
  get inPlace() {
    return Deno.UnsafePointer.create(0xffff_ffff_ffff_ffffn);
  },
};

/** Those of Open MPI that are no objects. */
export const OPEN_MPI_ADDRESSES = {
  ignoredStatus: null,
  get inPlace() {
    return Deno.UnsafePointer.create(1n);
  },
} as const;

/** Open MPI's numbers of them in Fortran, and the functions that turn these into handles. */
export const OPEN_MPI_NUMBERS = {
  world: ["MPI_Comm_f2c", 0],
  bytes: ["MPI_Type_f2c", 1],
  floats: ["MPI_Type_f2c", 13],
  sum: ["MPI_Op_f2c", 3],
  errorsReturn: ["MPI_Errhandler_f2c", 1],
} as const;

/**
 * What a launcher tells its processes, by the interface that it serves: mpirun of either, then srun,
 * which has Open MPI's processes find each other by PMIx and MPICH's by its own PMI-2. Variables of a
 * job of Slurm are seen by mpirun's processes in it too, so they come last.
 */
const LAUNCHERS: readonly {
  readonly abi: AbiName;
  readonly rank: string;
  readonly size: string;
}[] = [
  { abi: "openmpi", rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE" },
  { abi: "mpich", rank: "PMI_RANK", size: "PMI_SIZE" },
  { abi: "openmpi", rank: "PMIX_RANK", size: "SLURM_STEP_NUM_TASKS" },
  { abi: "mpich", rank: "SLURM_PROCID", size: "SLURM_STEP_NUM_TASKS" },
];

/** What the launcher of this process has told it. */
export interface Launched {
  readonly abi: AbiName;
  readonly rank: number;
  readonly size: number;
  /** Ranks that share the cores which this one may use, where anybody says. */
  readonly sharing?: number;
}

/** What Open MPI sets where it gives each process cores of its own. */
const IS_BOUND = "OMPI_MCA_orte_bound_at_launch";

/** What launchers call the number of processes of a host; Slurm's is that of all hosts, `2(x3),1`. */
const HOST_SIZES = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"];

/** Reads a variable. A program without permission to look is no rank, as a rank may do all. */
function variable(name: string): string | undefined {
  const { state } = Deno.permissions.querySync({ name: "env", variable: name });
  return state === "granted" ? Deno.env.get(name) : undefined;
}

/** Returns the place of this process in its job; undefined where no launcher started it. */
export function launchedRanks(env = variable): Launched | undefined {
  const found = LAUNCHERS.find(({ rank, size }) =>
    env(rank) !== undefined && env(size) !== undefined
  );
  if (!found) return undefined;
  const hostSize = parseInt(HOST_SIZES.map(env).find((size) => size !== undefined) ?? "");
  const sharing = env(IS_BOUND) === "1" ? 1 : hostSize;
  return {
    abi: found.abi,
    rank: Number(env(found.rank)),
    size: Number(env(found.size)),
    ...sharing > 0 && { sharing },
  };
}

/** What launchers call the number of a process among those of its host. */
const LOCAL_RANKS = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

/** Whether this process is the one of its host that says what is wrong there. */
export function isFirstOfHost(env = variable): boolean {
  return Number(LOCAL_RANKS.map(env).find((local) => local !== undefined) ?? 0) === 0;
}
