/**
 * Children of supervisors: they fail and end when they are told to.
 *
 * @module
 */

import type {
  ActorFactory,
  ActorRef,
  ActorSpec,
  Ask,
  Message,
} from "../../../actors/runtime/mod.ts";

function specOf<I, M extends Message>(name: string): ActorSpec<I, M> {
  return { module: import.meta.url, export: name };
}

export type UnitMessage =
  | { readonly type: "Fail" }
  | { readonly type: "End" }
  | { readonly type: "Friend" } & Ask<string>;

export interface UnitInit {
  /** What it is out of when it fails. */
  readonly outOf: string;
  readonly friend?: ActorRef<UnitMessage>;
  /** Fails as soon as it is made. */
  readonly isStillborn?: boolean;
}

export const UNIT = specOf<UnitInit, UnitMessage>("unit");

export const unit: ActorFactory<UnitInit, UnitMessage> = (ctx, { outOf, friend, isStillborn }) => {
  const { id } = ctx.self;
  if (isStillborn) throw new RangeError(`${id} is stillborn`);
  return {
    Fail() {
      throw new RangeError(`${id} is out of ${outOf}`);
    },
    End: () => ctx.stop(),
    Friend: () => ctx.reply(friend ? `${friend.id}/${friend.serial}` : "none"),
  };
};
