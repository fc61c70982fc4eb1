/**
 * The states of a worker; which messages have a meaning in each: `worker_messages.ts`.
 *
 * With a flush, a step goes round once:
 *
 *     connecting ─Connect→ idle ─Begin→ computing ─its last B→ reducing ─Commit→ committing
 *                           ▲                                     │ Abort            │ its last bucket
 *                           └─────────────────────────────────────┴──────────────────┘
 *
 * Without, it steps its weights by itself while more steps begin, until the pipe is to run empty:
 *
 *     connecting ─Connect→ idle ─Begin→ computing ─a B that an update follows→ committing
 *                           ▲            │   ▲                                     │ its last bucket
 *                           └─drained────┘   └─────────────────────────────────────┘
 *
 * @module
 */

/**
 * What a worker is at.
 *
 * - `connecting`: its stages are compiled; it does not know the others.
 * - `idle`: no step has begun; it may evaluate and save.
 * - `computing`: it runs forwards and backwards.
 * - `reducing`: all its backwards have run and it has voted; gradients are added.
 * - `committing`: it steps weights, bucket by bucket.
 */
export type WorkerState = "connecting" | "idle" | "computing" | "reducing" | "committing";
