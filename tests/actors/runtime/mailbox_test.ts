import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { Mailbox } from "../../../actors/runtime/mailbox/mailbox.ts";
import type { Envelope } from "../../../actors/runtime/mailbox/envelope.ts";
import type { Lane } from "../../../actors/runtime/mod.ts";

const contents = fc.array(
  fc.record({ sender: fc.nat(3), lane: fc.constantFrom<Lane>("control", "data") }),
  { size: "medium" },
);

function fill(mailbox: Mailbox, list: readonly { sender: number; lane: Lane }[]): Envelope[] {
  return list.map(({ sender, lane }, seq) => {
    const from = { id: `sender-${sender}`, isolate: 0, serial: sender };
    const envelope: Envelope = { seq, nth: 0, lane, from, message: { type: "Note" } };
    mailbox.push(envelope);
    return envelope;
  });
}

Deno.test("a mailbox gives control before data, and each lane in order", () => {
  fc.assert(fc.property(contents, (list) => {
    const mailbox = new Mailbox(), all = fill(mailbox, list);
    const taken: Envelope[] = [];
    for (let head = mailbox.head(); head; head = mailbox.head()) {
      assert.ok(mailbox.remove(head));
      taken.push(head);
    }
    const lane = (name: Lane) => all.filter((one) => one.lane === name);
    assert.deepEqual(taken, [...lane("control"), ...lane("data")]);
  }));
});

Deno.test("whatever is chosen among the heads, no sender is overtaken by itself in a lane", () => {
  fc.assert(fc.property(contents, fc.array(fc.nat(), { minLength: 1 }), (list, choices) => {
    const mailbox = new Mailbox();
    fill(mailbox, list);
    const last = new Map<string, number>();
    let count = 0;
    for (let heads = mailbox.heads(); heads.length > 0; heads = mailbox.heads()) {
      const chosen = heads[choices[count++ % choices.length]! % heads.length]!;
      assert.ok(mailbox.remove(chosen));
      const key = `${chosen.from.id} ${chosen.lane}`;
      assert.ok(chosen.seq > (last.get(key) ?? -1));
      last.set(key, chosen.seq);
    }
    assert.equal(count, list.length);
  }));
});

Deno.test("the heads stand in plain order: control before data, then the oldest first", () => {
  fc.assert(fc.property(contents, (list) => {
    const mailbox = new Mailbox();
    fill(mailbox, list);
    const heads = mailbox.heads();
    const order = ({ lane, seq }: Envelope) => (lane === "control" ? 0 : 1e6) + seq;
    assert.deepEqual(heads, heads.toSorted((a, b) => order(a) - order(b)));
    assert.equal(heads[0], mailbox.head());
  }));
});

Deno.test("drain empties both lanes, and tells what was there", () => {
  fc.assert(fc.property(contents, (list) => {
    const mailbox = new Mailbox(), all = fill(mailbox, list);
    assert.deepEqual(new Set(mailbox.drain()), new Set(all));
    assert.equal(mailbox.head(), undefined);
    assert.equal(mailbox.length, 0);
  }));
});
