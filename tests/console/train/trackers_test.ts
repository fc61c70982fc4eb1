/** What a run tells other programs: a collector of OpenTelemetry's, and TensorBoard. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { EVENT_FILE } from "../../../actors/run/metrics/tensorboard.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import {
  jsonLines,
  refusal,
  runTrain,
  someTokens,
  TINY,
  trainJson,
  writeTokens,
} from "../command.ts";

const trainOn = async (folder: string, steps: number) => [
  ...[...TINY, "--tokens", await writeTokens(folder, someTokens(1000)), "--runtime", "local"],
  ...["--steps", `${steps}`, "--eval-every", "2", "--lr-schedule", "linear"],
];

/** As much as is read of what OTLP calls an export request, in JSON. */
interface Exported {
  readonly resourceMetrics?: readonly {
    readonly scopeMetrics: readonly {
      readonly scope: { readonly name: string };
      readonly metrics: readonly {
        readonly name: string;
        readonly unit?: string;
        readonly gauge?: { readonly dataPoints: readonly { readonly asDouble: number }[] };
      }[];
    }[];
  }[];
}

folderTest(
  "a collector of OpenTelemetry's gets what a run measured last, as gauges",
  async (folder) => {
    const gauges = new Map<string, number>(), units = new Map<string, string>();
    await using collector = Deno.serve(
      { hostname: "127.0.0.1", port: 0, onListen: () => {} },
      async (request) => {
        const { resourceMetrics = [] }: Exported = await request.json();
        const scopes = resourceMetrics.flatMap(({ scopeMetrics }) => scopeMetrics);
        for (const { metrics } of scopes.filter(({ scope }) => scope.name === "troupe")) {
          for (const { name, unit, gauge } of metrics) {
            for (const { asDouble } of gauge?.dataPoints ?? []) gauges.set(name, asDouble);
            if (unit) units.set(name, unit);
          }
        }
        return Response.json({});
      },
    );
    const { code, stdout, stderr } = await runTrain(
      [...await trainOn(folder, 3), "--json"],
      [],
      {
        OTEL_DENO: "true",
        OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
        OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${collector.addr.port}`,
      },
    );
    assert.equal(code, 0, stderr);
    const lines = jsonLines(stdout), last = lines.findLast(({ loss }) => loss !== undefined)!;
    const { evalLoss } = lines.findLast(({ evalLoss }) => evalLoss !== undefined)!;
    const of = (name: string) => gauges.get(`troupe.train.${name}`);
    assert.deepEqual([of("step"), of("loss"), of("grad_norm")], [3, last.loss, last.gradNorm]);
    assert.deepEqual([of("eval.loss"), of("eval.perplexity")], [
      evalLoss,
      Math.exp(evalLoss as number),
    ]);
    assert.deepEqual([of("learning_rate"), of("loss_scale"), of("tokens")], [
      0.002 * (1 - 2 / 3),
      1,
      3 * 2 * 2 * 8,
    ]);
    assert.equal(of("tokens_per_second"), last.tokensPerSecond);
    assert.equal(units.get("troupe.train.memory.program"), "By");
  },
);

folderTest(
  "--log tensorboard writes to the folder of the run, and is told where there is none",
  async (folder) => {
    const train = await trainOn(folder, 2), out = join(folder, "out");
    const events = async () => (await namesIn(out)).filter((name) => EVENT_FILE.test(name)).length;
    await trainJson([...train, "--out", out, "--log", "tensorboard"]);
    assert.equal(await events(), 1);
    const resume = ["--resume", out, ...train.slice(train.indexOf("--tokens"))];
    await trainJson([
      ...resume,
      "--steps",
      "3",
      "--device",
      "reference",
      "--report_to",
      "tensorboard",
    ]);
    assert.equal(await events(), 2, "a run that goes on has one more");
    await trainJson([...train, "--out", out, "--overwrite"]);
    assert.equal(await events(), 0, "those of a run that is gone are gone");
    assert.equal(
      await refusal([...train, "--json", "--log", "tensorboard"]),
      "Cannot use --log tensorboard: --out must say where its files go, received none",
    );
  },
);
