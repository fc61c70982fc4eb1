/**
 * A general actor system: typed messages, mailboxes with three lanes, supervision, and isolates in Deno
 * workers and processes. It knows nothing of training.
 *
 * @module
 */

export { type ActorFactory, type Handlers, type Offers, OTHERS } from "./actor.ts";
export {
  ASK_TIMEOUT_MS,
  type AskCall,
  type AskOptions,
  type Candidate,
  type Choose,
  type Context,
  type DeadLetterEvent,
  MAILBOX_CAPACITY,
  MAX_DEAD_LETTERS,
  type PlaceName,
  type Reply,
  type SendOptions,
  type SlowStepEvent,
  type SpawnOptions,
  type StopOptions,
  type Subscription,
  type System,
  type SystemEvent,
  type SystemOptions,
  type SystemStopOptions,
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
export {
  type ActorRef,
  type ActorSpec,
  type Answers,
  type AnswerTo,
  type Ask,
  type Lane,
  type Message,
  type Questions,
  shouldFail,
  type Undeclared,
} from "./types.ts";
export type {
  Effect,
  ObservedActor,
  ObservedMessage,
  Observer,
  ObserverFactory,
  ObserverSpec,
} from "./observer.ts";
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
