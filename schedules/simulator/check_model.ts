/** What a model of a step must be, looked at before it is simulated. */

import type { Jitter, Link, StageModel, StepModel } from "./step_model.ts";

/** What a figure must be. */
interface Bound {
  readonly isMet: (value: number) => boolean;
  readonly inWords: string;
}

const TIME: Bound = {
  isMet: (value) => value >= 0 && Number.isFinite(value),
  inWords: "a finite number, at least 0",
};
const RATE: Bound = { isMet: (value) => value > 0, inWords: "a number above 0" };
const COUNT: Bound = {
  isMet: (value) => Number.isSafeInteger(value) && value >= 1,
  inWords: "a whole number, at least 1",
};
const WHOLE: Bound = { isMet: Number.isSafeInteger, inWords: "a whole number" };
const SHARE: Bound = { isMet: (value) => value >= 0 && value <= 1, inWords: "from 0 to 1" };

/** @throws {RangeError} if a figure of the model is not usable; the text says which. */
export function checkModel(model: StepModel): void {
  const { schedule, stages, replicas, network, jitter, closing, slowdowns = [], skipMs = [] } =
    model;
  requireLength("stages", stages.length, schedule.stages);
  if (slowdowns.length > 0) requireLength("slowdowns", slowdowns.length, schedule.workers);
  if (skipMs.length > 0) requireLength("skipMs", skipMs.length, schedule.edges?.length ?? 0);
  for (const [edge, ms] of skipMs.entries()) require(`skipMs[${edge}]`, ms, TIME);
  require("replicas", replicas, COUNT);
  for (const name of ["overlapMs", "dispatchMs", "controlMs"] as const) {
    require(name, model[name], TIME);
  }
  for (const [worker, factor] of slowdowns.entries()) require(`slowdowns[${worker}]`, factor, RATE);
  for (const [stage, one] of stages.entries()) checkStage(`stages[${stage}]`, one);
  checkLink("network.link", network?.link);
  checkLink("network.local", network?.local);
  require("network.nodeSize", network?.nodeSize, COUNT);
  checkJitter(jitter);
  checkLink("closing.link", closing?.link);
  require("closing.addBytesPerMs", closing?.addBytesPerMs, RATE);
  require("closing.bucketBytes", closing?.bucketBytes, RATE);
  for (const name of ["launchMs", "handleMs"] as const) {
    require(`closing.${name}`, closing?.[name], TIME);
  }
  for (const name of ["coarsening", "chunksUnderWay"] as const) {
    require(`closing.${name}`, closing?.[name], COUNT);
  }
  checkLink("closing.offload.link", closing?.offload?.link);
  for (const name of ["loadRatio", "storeRatio"] as const) {
    require(`closing.offload.${name}`, closing?.offload?.[name], TIME);
  }
}

function checkJitter(jitter: Jitter | undefined): void {
  if (jitter === undefined) return;
  const { law, amount, latencyAmount, seed } = jitter, most = law === "above" ? TIME : SHARE;
  if (typeof law !== "string") {
    require("jitter.law's factors", law.length, COUNT);
    for (const [rank, factor] of law.entries()) require(`jitter.law[${rank}]`, factor, RATE);
  }
  require("jitter.amount", amount, most);
  require("jitter.latencyAmount", latencyAmount, most);
  require("jitter.seed", seed, WHOLE);
}

function checkStage(where: string, { memory, ...figures }: StageModel): void {
  for (const [name, value] of Object.entries(figures)) require(`${where}.${name}`, value, TIME);
  for (const [name, value] of Object.entries(memory ?? {})) {
    require(`${where}.memory.${name}`, value, TIME);
  }
}

function checkLink(where: string, link: Link | undefined): void {
  require(`${where}.latencyMs`, link?.latencyMs, TIME);
  require(`${where}.bytesPerMs`, link?.bytesPerMs, RATE);
}

function require(what: string, value: number | undefined, { isMet, inWords }: Bound): void {
  if (value === undefined || isMet(value)) return;
  throw new RangeError(`Cannot simulate: ${what} must be ${inWords}, received ${value}`);
}

function requireLength(what: string, received: number, wanted: number): void {
  if (received === wanted) return;
  throw new RangeError(
    `Cannot simulate: ${what} must have ${wanted} entries, received ${received}`,
  );
}
