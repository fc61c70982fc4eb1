/**
 * A general actor system: typed messages, two-lane mailboxes, supervision, and isolates in Deno
 * workers and processes. It knows nothing of training.
 *
 * @module
 */

export type { Offers } from "./choose.ts";
export type { Candidate, Choose } from "./context.ts";
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
} from "./context.ts";
export {
  ActorFailedError,
  AskTimeoutError,
  type DeadLetter,
  type DeadReason,
  type Down,
  type Failure,
  type Reason,
} from "./failure.ts";
export { shouldFail } from "./types.ts";
export { type ActorFactory, type Handlers, OTHERS } from "./actor.ts";
export type {
  Effect,
  ObservedActor,
  ObservedMessage,
  Observer,
  ObserverFactory,
  ObserverSpec,
} from "./observer.ts";
export {
  type DeadLetterEvent,
  MAX_DEAD_LETTERS,
  type SlowStepEvent,
  type Subscription,
  type System,
  type SystemEvent,
  type SystemOptions,
  type SystemStopOptions,
} from "./context.ts";
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
} from "./transport.ts";
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
