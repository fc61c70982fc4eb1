/** The contract suite on the ranks of a job: rank 0 runs the tests, the others serve. */

import { openJob } from "../../../../actors/runtime/transports/mpi/job.ts";
import { mpiTransport } from "../../../../actors/runtime/transports/mpi/mpi_transport.ts";
import { runContract } from "../contract.ts";

const job = await openJob();
if (job.rank === 0) {
  runContract({ isolate: "mpi", transport: mpiTransport(job) });
  Deno.test(
    "the job ends",
    { sanitizeResources: false, sanitizeOps: false },
    () => job.root.close(),
  );
} else {
  await job.serve();
  Deno.exit(0);
}
