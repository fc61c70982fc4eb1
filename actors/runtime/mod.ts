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
  MAILBOX_CAPACITY,
  type PlaceName,
  type Reply,
  type SendOptions,
  type SpawnOptions,
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
export { createSystem } from "./system.ts";
export {
  type DeadLetterEvent,
  MAX_DEAD_LETTERS,
  type SlowStepEvent,
  type Subscription,
  type System,
  type SystemEvent,
  type SystemOptions,
  type SystemStopOptions,
} from "./system_api.ts";
export { decodeFrame, type EncodedFrame, encodeFrame } from "./transports/codec/codec.ts";
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
  Ask,
  Lane,
  Message,
  Questions,
  Undeclared,
} from "./types.ts";
