/**
 * Starts child processes that report the adapters visible in an environment.
 *
 * @module
 */

import { Graph } from "../../ops/graph.ts";
import { encodeModel } from "../../onnx/encode.ts";
import { TELEMETRY_SWITCH } from "../cpu/ort_library.ts";
import type { DType } from "../device.ts";
import { PROBE, type ProbeAnswer, type ProbeRequest } from "./probe.ts";

/** Asks for the adapters in an environment; tests replace {@linkcode askProbe}. */
export type Ask = (
  environment: Readonly<Record<string, string>>,
) => Promise<ProbeAnswer | { readonly failure: string }>;

/** Time limit for a driver's answer. */
const LIMIT_MS = 60_000;

/** The provider's reason on standard error for refusing an adapter. */
const WARNING = /^Warning: (.+)$/m;

/** Prefix of the reason in ONNX Runtime's errors. */
const PLACE = /^.* was false\. /s;

/**
 * Returns a function that asks child processes.
 *
 * @param library the ONNX Runtime library.
 * @param triesSoftware true if the provider is tried with software adapters only.
 */
export function askProbe(library: string, triesSoftware: boolean): Ask {
  const models = { f32: negation("f32").toBase64(), f16: negation("f16").toBase64() };
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
    const pipes = { stdin: "null", stdout: "piped", stderr: "piped" } as const;
    const child = new Deno.Command(Deno.execPath(), { args, env, ...pipes }).spawn();
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

/** Adds the provider's reason to a refusal, which its error lacks. */
function explained(answer: ProbeAnswer, said: string): ProbeAnswer {
  const { problem } = answer.provider ?? {};
  if (problem === undefined) return answer;
  const reason = said.match(WARNING)?.[1] ?? problem.trim().replace(PLACE, "");
  return { ...answer, provider: { problem: reason.replace(/\.$/, "") } };
}

/** Encodes a model of one node, `y = -x` with 4 elements. */
export function negation(dtype: DType): Uint8Array {
  const g = new Graph(), x = g.input("x", [4], dtype);
  return encodeModel(g, [{ name: "x", value: x }], [{ name: "y", value: g.neg(x) }]);
}
