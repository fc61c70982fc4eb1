/**
 * Asks a child process what a process with some environment sees of the machine's adapters.
 *
 * @module
 */

import { Graph } from "../../graph/graph.ts";
import { encodeModel } from "../../onnx/encode.ts";
import { TELEMETRY_SWITCH } from "../cpu/ort_library.ts";
import type { DType } from "../device.ts";
import { PROBE, type ProbeAnswer, type ProbeRequest } from "./probe.ts";

/** How to ask: the way of {@linkcode askProbe}, or of a test. */
export type Ask = (
  environment: Readonly<Record<string, string>>,
) => Promise<ProbeAnswer | { readonly failure: string }>;

/** A driver that has not answered after so long hangs. */
const LIMIT_MS = 60_000;

/** What the provider says on its standard error of why it does not take an adapter. */
const WARNING = /^Warning: (.+)$/m;

/** What stands before the reason in ONNX Runtime's errors. */
const PLACE = /^.* was false\. /s;

/**
 * Makes what asks child processes.
 *
 * @param library the ONNX Runtime library.
 * @param triesSoftware whether the provider is tried where there is nothing but software.
 */
export function askProbe(library: string, triesSoftware: boolean): Ask {
  const models = { f32: negation("f32"), f16: negation("f16") };
  const request: ProbeRequest = { library, triesSoftware, models };
  const args = [
    "run",
    ...["--quiet", "--no-prompt", "--no-lock", "--no-config", "--no-npm"],
    "--allow-ffi", // of all libraries: the system finds Vulkan's by its name
    `--allow-env=${TELEMETRY_SWITCH}`,
    PROBE,
    JSON.stringify(request),
  ];
  return async (environment) => {
    const env = { ...environment, DENO_NO_UPDATE_CHECK: "1", NO_COLOR: "1" };
    const command = new Deno.Command(Deno.execPath(), {
      args,
      env,
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    });
    const child = command.spawn();
    let hasHung = false;
    const limit = setTimeout(() => {
      hasHung = true;
      child.kill("SIGKILL");
    }, LIMIT_MS);
    const { signal, code, stdout, stderr } = await child.output();
    clearTimeout(limit);
    if (hasHung) return { failure: `a driver without an answer after ${LIMIT_MS / 1000} s` };
    const said = new TextDecoder().decode(stderr);
    try {
      return explained(JSON.parse(new TextDecoder().decode(stdout)), said);
    } catch {
      return { failure: `a driver that ended its process with ${signal ?? `exit code ${code}`}` };
    }
  };
}

/** A refusal of the provider with its reason, which it does not put into its error. */
function explained(answer: ProbeAnswer, said: string): ProbeAnswer {
  const { problem } = answer.provider ?? {};
  if (problem === undefined) return answer;
  const reason = said.match(WARNING)?.[1] ?? problem.trim().replace(PLACE, "");
  return { ...answer, provider: { problem: reason.replace(/\.$/, "") } };
}

/** A model of one node, in base64. */
function negation(dtype: DType): string {
  const g = new Graph(), x = g.input("x", [4], dtype);
  return encodeModel(g, [{ name: "x", value: x }], [{ name: "y", value: g.neg(x) }]).toBase64();
}
