/**
 * `--supervisor pipeline`: what injects micro-batches and closes steps; and its workers. Both as
 * packages export actors, so that one of your own can be made around them.
 *
 * @module
 */

import {
  PROTOCOL_VERSION,
  type SupervisorMessage,
  type WorkerMessage,
} from "../../pipeline/protocol.ts";
import { pipelineSupervisor } from "../../pipeline/supervisor/supervisor.ts";
import type { SupervisorInit } from "../../pipeline/supervisor/supervisor_init.ts";
import { SUPERVISOR_MESSAGES } from "../../pipeline/supervisor/supervisor_messages.ts";
import { pipelineWorker } from "../../pipeline/worker/worker.ts";
import type { WorkerInit } from "../../pipeline/worker/worker_init.ts";
import { WORKER_MESSAGES } from "../../pipeline/worker/worker_messages.ts";
import type { Context, Message } from "../../runtime/mod.ts";
import type { ActorDefinition, Schema } from "../../sandbox/mod.ts";

/** All messages of a protocol, whatever they hold: the states of the actors judge them. */
const all = <M extends Message>(types: readonly M["type"][]) =>
  Object.fromEntries(types.map((type) => [type, {}])) as { readonly [K in M["type"]]: Schema };

/** The supervisor of a pipeline, as a trusted package exports it. */
export const supervisor: ActorDefinition<
  SupervisorInit,
  SupervisorMessage,
  Context<SupervisorMessage>
> = {
  name: "pipeline",
  protocol: PROTOCOL_VERSION,
  messages: all<SupervisorMessage>(SUPERVISOR_MESSAGES),
  create: pipelineSupervisor,
};

/** A worker of a pipeline, which owns a device and some stages. */
export const worker: ActorDefinition<WorkerInit, WorkerMessage, Context<WorkerMessage>> = {
  name: "pipeline-worker",
  protocol: PROTOCOL_VERSION,
  messages: all<WorkerMessage>(WORKER_MESSAGES),
  create: pipelineWorker,
};
