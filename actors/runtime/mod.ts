/**
 * A general actor system: typed messages, two-lane mailboxes, supervision, and isolates in Deno
 * workers and processes. It knows nothing of training.
 *
 * @module
 */

export type { Candidate, Choose, Offers } from "./mailbox/choose.ts";
export {
  ASK_TIMEOUT_MS,
  type AskCall,
  type AskOptions,
  type Context,
  type ForwardOptions,
  MAILBOX_CAPACITY,
  type Placement,
  type PlaceName,
  type Reply,
  type SendOptions,
  type SpawnOptions,
  STEP_LIMIT_MS,
  type StopOptions,
} from "./context_api.ts";
export {
  ActorFailedError,
  AskTimeoutError,
  type DeadLetter,
  type DeadReason,
  type Down,
  type Failure,
  type Reason,
} from "./failure.ts";
export { shouldFail } from "./fault_sites.ts";
export { type ActorFactory, type Handlers, OTHERS } from "./handlers.ts";
export type {
  Effect,
  ObservedActor,
  ObservedMessage,
  Observer,
  ObserverFactory,
  ObserverSpec,
} from "./observer.ts";
export {
  type ActorDefinition,
  checkDefinition,
  defineActor,
  type Schema,
} from "./packages/definition.ts";
export { type HashedModule, hashModule } from "./packages/hash_module.ts";
export {
  inspectActor,
  type InspectedActor,
  inspectHashed,
  type InspectOptions,
} from "./packages/inspect.ts";
export type {
  GraphModule,
  GraphOptions,
  Lock,
  ModuleGraph,
  NpmPackage,
} from "./packages/module_graph.ts";
export { type Broadcast, broadcast, type Pool, type Spawner, spawnPool } from "./pool/pool.ts";
export {
  type ChildSpec,
  childSpec,
  type ChildState,
  type RestartStrategy,
  type Supervision,
} from "./supervision/child_spec.ts";
export type { BackOff, RestartLimits } from "./supervision/restarts.ts";
export { CHILD_SUPERVISOR, type SupervisionMessage } from "./supervision/supervisor.ts";
export { createSystem } from "./system.ts";
export {
  type DeadLetterEvent,
  type DeniedEvent,
  MAX_DEAD_LETTERS,
  type MovedEvent,
  type SlowStepEvent,
  type Subscription,
  type System,
  type SystemEvent,
  type SystemOptions,
  type SystemStopOptions,
} from "./system_api.ts";
export { decodeFrame, type EncodedFrame, encodeFrame } from "./transports/codec/codec.ts";
export type { Confined, Confinement, Least, Permissions } from "./transports/confinement.ts";
export { type ServedIsolate, serveIsolate } from "./transports/serve.ts";
export {
  type FrameSink,
  type FrameSource,
  Outbox,
  receiveFrames,
} from "./transports/stream/stream.ts";
export type {
  Addend,
  Collectives,
  Invitation,
  IsolateSide,
  OpenTransport,
  PeerConnector,
  PeerReceiver,
  PeerSender,
  RemoteIsolate,
  StartRequest,
  Transport,
  TransportOptions,
} from "./transports/transport.ts";
export type {
  ActorRef,
  ActorSpec,
  Answers,
  AnswerTo,
  AnySpec,
  Ask,
  Lane,
  Message,
  PackageSpec,
  Questions,
  Undeclared,
} from "./types.ts";
