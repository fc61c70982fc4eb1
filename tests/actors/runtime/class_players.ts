/**
 * Actors that are instances of classes.
 *
 * @module
 */

import type {
  ActorFactory,
  ActorSpec,
  Ask,
  Context,
  Handlers,
  Message,
} from "../../../actors/runtime/mod.ts";

function specOf<I, M extends Message>(name: string): ActorSpec<I, M> {
  return { module: import.meta.url, export: name };
}

/** An account, with what it inherits. */
export type AccountMessage =
  | { readonly type: "Pay"; readonly amount: number }
  | { readonly type: "Refund"; readonly amount: number }
  | { readonly type: "Name" } & Ask<string>
  | { readonly type: "Balance" } & Ask<number>;

class Named {
  protected readonly ctx: Context<AccountMessage>;
  constructor(ctx: Context<AccountMessage>) {
    this.ctx = ctx;
  }
  Name() {
    this.ctx.reply("nobody's");
  }
  Balance() {
    this.ctx.reply(Number.NaN);
  }
}

class Account extends Named implements Handlers<AccountMessage> {
  #balance: number;
  readonly fees = [1];
  readonly Refund = ({ amount }: { readonly amount: number }) => this.#add(-amount);

  constructor(ctx: Context<AccountMessage>, balance: number) {
    super(ctx);
    this.#balance = balance;
  }

  Pay({ amount }: { readonly amount: number }) {
    this.#add(amount);
  }

  override Balance() {
    this.ctx.reply(this.#balance);
  }

  get Total() {
    return () => this.#balance;
  }

  override toString() {
    throw new Error("must not be called");
  }

  #add(amount: number) {
    this.#balance += amount;
  }
}

export const ACCOUNT = specOf<number, AccountMessage>("account");

export const account: ActorFactory<number, AccountMessage> = (ctx, balance) =>
  new Account(ctx, balance);
