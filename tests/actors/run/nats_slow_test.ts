/** Runs on hosts that meet at a server of NATS have the bits of serial runs, also after losses. */

import assert from "node:assert/strict";
import type { TrainOptions } from "../../../actors/options/train_options.ts";
import { train } from "../../../actors/run/train.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { inFolder, namesIn } from "../../in_folder.ts";
import { natsTest, RUN, TestServer } from "../runtime/nats/server.ts";
import { thrownBy } from "../runtime/harness.ts";
import { assertRefused } from "../../kernels/graph/refused.ts";
import { batchesOf, eventsOf, once, outcome, type Sizes, SMALL } from "../runs.ts";

const SIZES: Sizes = { ...SMALL, hidden: 16, seq: 8, microBatches: 4, steps: 10 };

const LAYOUT = { device: "native", schedule: "1f1b", workers: 2, replicas: 2 } as const;

const serial = once((_name) => outcome(SIZES, { ...LAYOUT, runtime: "serial" }));

const natsOf = (server: TestServer, timeoutMs: number) => ({
  ...{ url: server.url, credentials: server.credentials(0), run: RUN },
  ...{ joinMs: 60_000, timeoutMs },
});

/** Trains on the hosts of a server; returns the announced lines, too. */
async function onHosts(
  server: TestServer,
  options: Partial<TrainOptions>,
  onStep: (step: number) => void = () => {},
) {
  const said: string[] = [];
  const run = await outcome(SIZES, {
    ...{ ...LAYOUT, runtime: "nats", nats: natsOf(server, 2500) },
    announce: (line) => said.push(line),
    metrics: ({ type, step }) => type === "step" && onStep(step),
    ...options,
  });
  return { ...run, said };
}

natsTest(
  "a run on hosts whose worker loops has the serial bits, and its leader checkpoints",
  () =>
    inFolder(async (directory) => {
      await using server = await TestServer.start(4);
      const hosts = [1, 2, 3, 4].map((number) => server.host(number));
      const checkpoint = { directory, every: 3, config: {} };
      const faults = [{ kind: "loop", worker: 1, afterActions: 60 }] as const;
      const options = { checkpoint, failover: "restart", faults, stallMs: 1500 } as const;
      const { bits, events } = await onHosts(server, options);
      assert.deepEqual(bits, (await serial("")).bits);
      const failures = eventsOf(events, "failure").map(({ reason }) => reason);
      assert.match(failures.join(), /stalled for 1500 ms: .*worker-1 does not answer/);
      await Promise.all(hosts);
      assert.ok((await namesIn(`${directory}/step-00000003`)).includes("model.safetensors"));
    }),
);

natsTest("hosts that are killed or stopped change no bit, and a spare replaces them", async () => {
  await using server = await TestServer.start(5);
  const processes = [1, 2].map((number) => server.hostProcess(number));
  const threads = [3, 4].map((number) => server.host(number));
  try {
    const { bits, events, said } = await onHosts(server, { failover: "resize" }, (step) => {
      if (step === 1) threads.push(server.host(5));
      if (step === 2) processes[0]!.kill("SIGKILL");
      if (step === 4) processes[1]!.kill("SIGSTOP");
    });
    assert.deepEqual(bits, (await serial("")).bits);
    assert.deepEqual(said.filter((line) => line.includes(" is lost: ")).sort(), [
      "host 1 is lost: it is not connected to the server",
      "host 2 is lost: it was silent for 2.5 s",
    ]);
    assert.equal(eventsOf(events, "failure").length + eventsOf(events, "resize").length, 2);
    await Promise.all(threads);
  } finally {
    processes[1]!.kill("SIGKILL");
    for (const one of processes) await one.status;
  }
});

natsTest("a server that is killed and started again changes no bit", async () => {
  await using server = await TestServer.start(5);
  const hosts = [1, 2, 3, 4, 5].map((number) => server.host(number));
  let again: Promise<void> | undefined;
  const nats = { ...natsOf(server, 20_000), spares: 1 };
  const { bits, events, said } = await onHosts(server, { nats }, (step) => {
    if (step === 2) again = server.kill().then(() => server.begin());
  });
  const waiting = said.findIndex((line) => /^waiting for 5 /.test(line));
  assert.ok(said.indexOf("host 5 has joined") > waiting);
  assert.ok(!said.some((line) => /^the run starts with/.test(line)));
  assert.deepEqual(bits, (await serial("")).bits);
  assert.deepEqual(eventsOf(events, "failure"), []);
  await again;
  await Promise.all(hosts);
});

natsTest("a server that does not come back ends the run and its hosts", async () => {
  await using server = await TestServer.start(4);
  const hosts = [1, 2, 3, 4].map((number) => thrownBy(server.host(number)));
  const nats = { ...natsOf(server, 1000), joinMs: 2500 };
  const killAt = (step: number) => void (step === 2 && server.kill());
  const errors = [await thrownBy(onHosts(server, { nats }, killAt)), ...await Promise.all(hosts)];
  const [run, ...ends] = errors as (Error & { exitCode?: number })[];
  const few = /^Cannot train: the hosts that join within 2\.5 s must be at least 1,/;
  assert.match(run!.message, few);
  for (const { message } of ends) {
    assert.match(message, /^Cannot stay in the run .* received nothing$/);
  }
  for (const { exitCode } of [run!, ...ends]) assert.equal(exitCode, 75);
});

natsTest(
  "a host leaves between steps, so none is retaken, and not before a run that ends",
  async () => {
    await using server = await TestServer.start(4);
    const leaving = new AbortController(), later = new AbortController();
    const hosts = [1, 2, 3, 4].map((number) =>
      server.host(number, (number === 2 ? leaving : later).signal)
    );
    const { bits, said, events } = await onHosts(server, { failover: "resize" }, (step) => {
      if (step === 1) leaving.abort();
      if (step === SIZES.steps - 1) later.abort();
    });
    const [resize, ...others] = eventsOf(events, "resize");
    assert.deepEqual(bits, (await serial("")).bits);
    assert.deepEqual([resize?.from, resize?.retaken, others], [4, 0, []]);
    assert.ok(said.includes("host 2 is lost: it has left the run"));
    await Promise.all(hosts);
  },
);

natsTest(
  "hosts that all leave wait until a checkpoint is written",
  () =>
    inFolder(async (directory) => {
      await using server = await TestServer.start(5);
      const leaving = new AbortController();
      const hosts = [1, 2, 3, 4, 5].map((number) => server.host(number, leaving.signal));
      const checkpoint = { directory, config: {} };
      const nats = { ...natsOf(server, 2500), joinMs: 2500, spares: 1 };
      const error = await thrownBy(onHosts(server, { nats, checkpoint }, (step) => {
        if (step === 2) leaving.abort();
      }));
      assert.equal((error as Error & { exitCode?: number }).exitCode, 75);
      await Promise.all(hosts);
      const resumed = await outcome(SIZES, { ...LAYOUT, runtime: "serial", resume: directory });
      assert.ok(resumed.bits.losses.length < SIZES.steps - 1);
      assert.equal(resumed.bits.hash, (await serial("")).bits.hash);
    }),
);

natsTest("too few hosts, and options that hosts cannot serve, are refused", async () => {
  await using server = await TestServer.start(1);
  const place = { ...natsOf(server, 1000), joinMs: 100, spares: 1 };
  const signal = AbortSignal.abort(), said: string[] = [];
  const announce = (line: string) => said.push(line);
  const data = batchesOf(SIZES), model = gpt2(SIZES, SIZES.microBatch);
  const run = { model, data, steps: 1, microBatches: 4, ...LAYOUT, runtime: "nats" } as const;
  await assert.rejects(onHosts(server, { nats: place }), { exitCode: 75 });
  await assertRefused("nats_runs", [
    () => onHosts(server, { nats: place }),
    () => onHosts(server, { nats: place, signal, announce }),
    () => train(run).next(),
    () => train({ ...run, nats: { ...place, run: "a.b" } }).next(),
  ]);
  assert.ok(!said.some((line) => line.includes("starts with")));
});
