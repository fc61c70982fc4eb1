/** Supervisors begin again what ends, by OTP's strategies, in the simulator. */

import assert from "node:assert/strict";
import {
  type ActorRef,
  CHILD_SUPERVISOR,
  type ChildSpec,
  childSpec,
  createSystem,
  type RestartStrategy,
  type Supervision,
} from "../../../actors/runtime/mod.ts";
import {
  beginJournal,
  pct,
  random,
  replayInbox,
  type Run,
  simulate,
  type SimulateOptions,
  type World,
} from "../../../actors/simulation/mod.ts";
import { UNIT, type UnitMessage } from "./supervised_players.ts";

type Options = Partial<Omit<Supervision, "children">> & {
  readonly children?: readonly ChildSpec[];
};

const LUCKLESS = { outOf: "luck" };

const childOf = (id: string, more: Partial<ChildSpec> = {}) => ({
  ...childSpec({ id, spec: UNIT, init: LUCKLESS }),
  ...more,
});

/** Who comes and goes, in order: `+a`, `-a`. */
function keepDiary({ invariant }: World, onBirth?: (id: string, lives: string[]) => void) {
  const diary: string[] = [];
  let lives: readonly string[] = [];
  invariant("diary", ({ actors }) => {
    for (const id of lives) if (!actors.includes(id)) diary.push(`-${id}`);
    for (const id of actors) {
      if (lives.includes(id)) continue;
      onBirth?.(id, lives.filter((one) => actors.includes(one)));
      diary.push(`+${id}`);
    }
    lives = [...actors];
  });
  return diary;
}

/** A supervisor of children a, b and c, and what is done to them. */
async function open(world: World, { children, ...options }: Options = {}) {
  const { system, idle } = world, diary = keepDiary(world);
  const specs = children ?? ["a", "b", "c"].map((id) => childOf(id));
  const supervision = { intensity: 10, ...options, children: specs };
  const supervisor = system.spawn(CHILD_SUPERVISOR, supervision, { id: "supervisor" });
  const child = async (id: string) =>
    await system.ask(supervisor, { type: "Child", id }) as ActorRef<UnitMessage> | undefined;
  const tell = async (id: string, type: "Fail" | "End") => {
    system.send((await child(id))!, { type });
    await idle();
  };
  const states = async () =>
    (await system.ask(supervisor, { type: "Children" })).map(({ id, state, restarts }) =>
      `${id} ${state} ${restarts}`
    );
  await idle();
  return { supervisor, child, tell, diary, states };
}

async function play<T>(
  scenario: (world: World) => Promise<T>,
  options: SimulateOptions = {},
): Promise<Run<T>> {
  const run = await simulate(options, scenario);
  for (let seed = 0; seed < 5; seed++) {
    const other = await simulate({ seed, strategy: random(), ...options }, scenario);
    assert.deepEqual(other.value, run.value, `seed ${seed}: ${other.failure?.message}`);
  }
  return run;
}

for (
  const [strategy, notes] of [
    ["one-for-one", ["-b", "+b"]],
    ["one-for-all", ["-b", "-c", "-a", "+a", "+b", "+c"]],
    ["rest-for-one", ["-b", "-c", "+b", "+c"]],
  ] as const
) {
  Deno.test(`${strategy}: who is stopped and begun again, in which order`, async () => {
    const { value } = await play(async (world) => {
      const { tell, diary } = await open(world, { strategy });
      const before = diary.length;
      await tell("b", "Fail");
      return diary.slice(before);
    });
    assert.deepEqual(value, notes);
  });
}

for (
  const [restart, how, state] of [
    ["permanent", "Fail", "b up 1"],
    ["permanent", "End", "b up 1"],
    ["transient", "Fail", "b up 1"],
    ["transient", "End", "b ended 0"],
    ["temporary", "Fail", "b ended 0"],
    ["temporary", "End", "b ended 0"],
  ] as const
) {
  Deno.test(`a ${restart} child that comes to its end by ${how} is then: ${state}`, async () => {
    const { value } = await play(async (world) => {
      const children = ["a", "b"].map((id) => childOf(id, { restart }));
      const { tell, states } = await open(world, { children });
      await tell("b", how);
      return await states();
    });
    assert.deepEqual(value, ["a up 0", state]);
  });
}

Deno.test("a temporary child that is stopped with others is not begun again with them", async () => {
  const { value } = await play(async (world) => {
    const children = [
      childOf("a"),
      childOf("b", { restart: "temporary" }),
      childOf("c", { restart: "transient" }),
    ];
    const { tell, states } = await open(world, { strategy: "one-for-all", children });
    await tell("a", "Fail");
    return await states();
  });
  assert.deepEqual(value, ["a up 1", "b ended 0", "c up 1"]);
});

Deno.test("a child that fails too often ends the supervisor and the others, and says why", async () => {
  const { failure } = await play(async (world) => {
    const { tell } = await open(world, { intensity: 2, periodMs: 1000 });
    for (let n = 0; n < 3; n++) await tell("b", "Fail");
  });
  assert.equal(failure?.kind, "actor");
  assert.equal(
    failure!.message,
    'Actor "supervisor" failed while handling Down: Error: Cannot restart "b": there must be at ' +
      'most 2 restarts in 1000 ms; Actor "b" failed while handling Fail: RangeError: b is out of luck',
  );
});

Deno.test("failures that are older than the period are forgotten", async () => {
  const { value, failure } = await play(async (world) => {
    const { tell, states } = await open(world, { intensity: 2, periodMs: 1000 });
    for (let n = 0; n < 6; n++) {
      await tell("b", "Fail");
      await world.advance(501);
    }
    return await states();
  });
  assert.equal(failure, undefined);
  assert.deepEqual(value, ["a up 0", "b up 6", "c up 0"]);
});

Deno.test("each restart waits twice as long, within bounds, and others go on meanwhile", async () => {
  const backOff = { firstMs: 100, maxMs: 250 };
  const { value } = await play(async (world) => {
    const { system, advance } = world;
    const { child, states } = await open(world, { intensity: 9, periodMs: 60_000, backOff });
    const seen: string[] = [];
    for (const waitMs of [0, 100, 200, 250, 250]) {
      system.send((await child("b"))!, { type: "Fail" });
      if (waitMs > 0) {
        await advance(waitMs - 1);
        seen.push((await states())[1]!);
      }
      await advance(1);
      seen.push((await states())[1]!);
    }
    return seen;
  }, { raceMs: 0 });
  assert.deepEqual(value, [
    ...["b up 1", "b waiting 1", "b up 2", "b waiting 2", "b up 3"],
    ...["b waiting 3", "b up 4", "b waiting 4", "b up 5"],
  ]);
});

Deno.test("whoever asks for a child that is about to be begun again waits for it", async () => {
  const backOff = { firstMs: 100, maxMs: 100 };
  const { value } = await play(async (world) => {
    const { child, tell } = await open(world, { backOff });
    const first = await child("b");
    await tell("b", "Fail");
    world.system.send((await child("b"))!, { type: "Fail" });
    const third = await child("b");
    return [first!.serial < third!.serial, third!.id, await child("nobody")];
  });
  assert.deepEqual(value, [true, "b", undefined]);
});

Deno.test("what a child needs of others is theirs of the moment", async () => {
  for (const strategy of ["rest-for-one", "one-for-one"] as const) {
    const { value } = await play(async (world) => {
      const children = [
        childOf("a"),
        childSpec({ id: "b", spec: UNIT, init: LUCKLESS, needs: { friend: "a" } }),
      ];
      const { child, tell } = await open(world, { strategy, children });
      const friend = async () =>
        await world.system.ask((await child("b"))!, { type: "Friend" }) ===
          `a/${(await child("a"))!.serial}`;
      const before = await friend();
      await tell("a", "Fail");
      return [before, await friend()];
    });
    assert.deepEqual(value, [true, strategy === "rest-for-one"]);
  }
});

Deno.test("a child that cannot even be made counts like any that fails", async () => {
  const { failure } = await play(async (world) => {
    const children = [
      childSpec({ id: "b", spec: UNIT, init: { ...LUCKLESS, isStillborn: true } }),
    ];
    await open(world, { intensity: 3, children });
  });
  assert.match(
    failure!.message,
    /most 3 restarts in 5000 ms; Actor "b" failed while handling init/,
  );
});

Deno.test("children come and go while the supervisor lives", async () => {
  const { value } = await play(async (world) => {
    const { system, idle } = world;
    const { supervisor, states, child } = await open(world, { strategy: "rest-for-one" });
    const added = await system.ask(supervisor, { type: "StartChild", child: childOf("d") });
    const again = await system.ask(supervisor, { type: "StartChild", child: childOf("d") });
    system.send(supervisor, { type: "StopChild", id: "b" });
    await idle();
    system.send((await child("a"))!, { type: "Fail" });
    await idle();
    return [added?.serial === again?.serial, await child("b"), ...await states()];
  });
  assert.deepEqual(value, [true, undefined, "a up 1", "c up 1", "d up 1"]);
});

for (const strategy of ["one-for-all", "rest-for-one", "one-for-one"] as const) {
  Deno.test(`${strategy}: whatever fails whenever, all are up again in the end`, async () => {
    for (let seed = 0; seed < 40; seed++) {
      const chosen = seed % 2 === 0 ? random() : pct(3);
      const run = await simulate({ seed, strategy: chosen }, (world) => stormy(world, strategy));
      assert.equal(run.failure, undefined, `seed ${seed}`);
    }
  });
}

/** Children fail at any moment, also while others are stopped for them. */
async function stormy(world: World, strategy: RestartStrategy): Promise<void> {
  const { system, idle } = world;
  // Whoever is begun again for others must not meet those of before.
  keepDiary(world, (id, lives) => {
    const later = ["a", "b", "c"].filter((one) => strategy === "one-for-all" ? true : one > id);
    const met = strategy === "one-for-one" ? [] : later.filter((one) => lives.includes(one));
    assert.deepEqual(met, [], `${id} is begun while ${met} of before live`);
  });
  const { child, states } = await open(world, { strategy, intensity: 99 });
  for (let round = 0; round < 3; round++) {
    for (const id of ["c", "a", "b", "a"]) {
      const ref = await child(id);
      if (ref) system.send(ref, { type: "Fail" });
    }
  }
  await idle();
  assert.deepEqual((await states()).map((state) => state.split(" ")[1]), ["up", "up", "up"]);
}

Deno.test("what a supervisor is made with is checked at the door", async () => {
  const wrong: [Partial<Record<keyof Supervision, unknown>>, RegExp][] = [
    [{ strategy: "all-for-one" }, /strategy must be one-for-one, .*, received all-for-one/],
    [{ intensity: -1 }, /intensity must be an integer of 0 or more, received -1/],
    [{ periodMs: Number.NaN }, /periodMs must be a number of 0 or more, received NaN/],
    [{ backOff: { firstMs: -1, maxMs: 1 } }, /firstMs must be a number of 0 or more/],
    [{ children: "a" }, /children must be an array, received string/],
    [
      { children: [childOf("a"), childOf("a")] },
      /the id of a child must be one that none/,
    ],
    [{ children: [childOf("a", { needs: { x: "b" } })] }, /x in needs of "a" must be the id/],
    [{ children: [childOf("a", { restart: "never" as never })] }, /restart of "a" must be/],
  ];
  for (const [options, text] of wrong) {
    const run = await simulate({}, async ({ system, idle }) => {
      system.spawn(CHILD_SUPERVISOR, { children: [], ...options } as Supervision, { id: "s" });
      await idle();
    });
    assert.match(run.failure!.message, text);
  }
  // @ts-expect-error: init must be what the factory is given
  childSpec({ id: "a", spec: UNIT, init: { outOf: 3 } });
  // @ts-expect-error: and must not lack what nobody gives
  childSpec({ id: "a", spec: UNIT, init: {}, needs: { friend: "b" } });
});

Deno.test("the inbox of a supervisor replays", async () => {
  const path = await Deno.makeTempFile();
  try {
    {
      await using system = createSystem({ observer: await beginJournal({ path, payloads: true }) });
      const children = ["a", "b"].map((id) => childOf(id));
      const supervisor = system.spawn(
        CHILD_SUPERVISOR,
        { strategy: "one-for-all", children },
        { id: "supervisor" },
      );
      const ref = await system.ask(supervisor, { type: "Child", id: "b" });
      const down = new Promise((resolve) => system.watch(ref!, resolve));
      system.send(ref as ActorRef<UnitMessage>, { type: "Fail" });
      await down;
      await system.ask(supervisor, { type: "Child", id: "b" });
    }
    const { steps, states } = await replayInbox(CHILD_SUPERVISOR, path);
    assert.ok(steps >= 6 && states >= 5);
  } finally {
    await Deno.remove(path);
  }
});

Deno.test("one-for-one: a child that needs another waits until that is up again", async () => {
  const { value } = await play(async (world) => {
    const children = [childOf("a"), childOf("b", { needs: { friend: "a" } })];
    const backOff = { firstMs: 100, maxMs: 1000 };
    const { system, idle, advance } = world;
    const { child, tell } = await open(world, { children, backOff });
    await tell("a", "Fail");
    const [a, b] = [(await child("a"))!, (await child("b"))!];
    // b is to wait for less time than a.
    system.send(b, { type: "Fail" });
    system.send(a, { type: "Fail" });
    await advance(1000);
    await idle();
    return await system.ask((await child("b"))!, { type: "Friend" }) === "none";
  });
  assert.equal(value, false);
});
