/** A program that terminates busy workers in the middle of a run, one after the other. */

const ROUNDS = 4;

for (let round = 0; round < ROUNDS; round++) {
  const worker = new Worker(new URL("./busy_worker.ts", import.meta.url), { type: "module" });
  worker.postMessage(Deno.args[0]);
  await new Promise((resolve) => worker.onmessage = resolve);
  await new Promise((resolve) => setTimeout(resolve, 5 + 3 * round));
  worker.terminate();
}
// Long enough for a run that was left behind to touch what it needs.
await new Promise((resolve) => setTimeout(resolve, 200));
