/**
 * What isolates say to each other over a connection that goes from one to the other.
 *
 * @module
 */

import type { Address } from "./addresses.ts";

/** Where an isolate that has invited another can be reached. */
export interface InvitationAddress extends Address {
  /** Which of its invitations it is. */
  readonly invitation: number;
}

/** What isolates say to each other. */
export type PeerFrame =
  /** The receiver of the connection is there. */
  | { readonly kind: "connected"; readonly from: Address; readonly invitation: number }
  | { readonly kind: "frame"; readonly from: number; readonly frame: unknown }
  /** Nothing more comes. */
  | { readonly kind: "end"; readonly from: number };
