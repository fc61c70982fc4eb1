/**
 * A profile, and the check of one, as lines of text.
 *
 * @module
 */

import type { CheckedStep, CheckResult } from "../../actors/foresight/check/checked_step.ts";
import type { StepParts } from "../../actors/foresight/check/step_parts.ts";
import type { Profile } from "../../actors/foresight/profile/profile.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";

const ms = (value: number | undefined): string => value === undefined ? "" : value.toPrecision(3);

const percent = (share: number) => `${(100 * share).toFixed(1)} %`;

/** A profile as lines of text. */
export function describeProfile(profile: Profile): string[] {
  const { machine, layers, links, dispatchMs, closing, optimizer, notes } = profile;
  const rows = layers.map((one) => [
    ...[one.kind, one.device, `${one.microBatch}`, one.recompute, `${one.atOnce}`],
    ...[one.forwardMs, one.backwardMs, one.inputMs, one.weightMs].map(ms),
  ]);
  const head = ["layer", "device", "B", "recompute", "at once", "F ms", "B ms", "I ms", "W ms"];
  return [
    `${machine.name}, ${machine.cores} cores: costs of one micro-batch, ${profile.source}`,
    "",
    ...formatTable([head, ...rows], { left: [0, 1, 3] }),
    "",
    ...formatTable([
      ["messages", "latency ms", "GB/s"],
      ...Object.entries(links).map(([name, { latencyMs, bytesPerMs }]) => [
        name,
        ms(latencyMs),
        bytesPerMs === undefined ? "moved" : ms(bytesPerMs / 1e6),
      ]),
    ]),
    "",
    `between two actions lie ${ms(dispatchMs)} ms; a step takes ${
      ms(closing.stepMs)
    } ms to begin and end`,
    `the optimizer takes ${ms(optimizer.msPerMillion)} ms for a million numbers`,
    ...notes,
  ];
}

/** A checked step as lines of text; where the prediction is far off, where the time went. */
export function describeChecked(step: CheckedStep, isNear: boolean): string[] {
  const { configuration, measured, spread, predicted, error, parts, notes } = step;
  const sign = predicted < measured ? "-" : "+";
  const line = `${configuration}: measured ${measured.toFixed(1)} ± ${spread.toFixed(1)} ms, ` +
    `predicted ${predicted.toFixed(1)} (${sign}${percent(error)})${isNear ? "" : ": missed"}`;
  if (isNear && error <= EXPLAINED_ERROR) return [line, ...notes.map((note) => `  ${note}`)];
  return [line, ...partTable(parts), ...notes.map((note) => `  ${note}`)];
}

/** A prediction that is farther off is explained. */
const EXPLAINED_ERROR = 0.05;

function partTable({ measured, predicted }: CheckedStep["parts"]): string[] {
  const row = (name: string, of: (parts: StepParts) => number | undefined) => [
    `  ${name}`,
    ...[measured, predicted].map((parts) => of(parts)?.toFixed(2) ?? ""),
  ];
  return formatTable([
    ["  mean of the workers, ms", "measured", "predicted"],
    row("busy", ({ busyMs }) => busyMs),
    row("between actions", ({ dispatchMs }) => dispatchMs),
    row("messages", ({ messageMs }) => messageMs),
    row("bubble", ({ bubbleMs }) => bubbleMs),
    row("begin and end of the step", ({ closingMs }) => closingMs),
    ...Object.keys(measured.actions).map((name) => row(name, ({ actions }) => actions[name])),
  ]);
}

/** What a check comes to, as lines of text. */
export function describeResult(
  { medianError, worstError, missed, isPassed }: CheckResult,
): string[] {
  return [
    "",
    `median error ${percent(medianError)}, worst ${percent(worstError)}: ${
      isPassed ? "within the bounds" : "beyond the bounds"
    }${missed.length > 0 ? `; missed: ${missed.map((one) => one.configuration).join("; ")}` : ""}`,
  ];
}
