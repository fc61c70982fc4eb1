/** Journals from elsewhere: they import, open and take nothing that the user has not named. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { encodePayload } from "../../../actors/simulation/journal/payload_codec.ts";
import { digestOf, readJournal } from "../../../testing.ts";
import { type Forged, recordsOf, sealed } from "../../actors/simulation/forged.ts";
import { inFolder, type Outcome, runTroupe, TINY, trainJson } from "../command.ts";

/** Refused in one sentence, before anything is begun. */
async function refused(pattern: RegExp, ...args: string[]): Promise<void> {
  const { code, stdout, stderr } = await runTroupe(["replay", ...args]);
  assert.equal(code, 2, stdout + stderr);
  assert.match(stderr, /^Cannot [^\n]+\n$/);
  assert.match(stderr, pattern);
}

/** A journal of this configuration and no steps. */
const journalOf = (configuration: unknown): Forged[] => [
  {
    ...{ format: "troupe-journal", version: 2, package: "0.1.0", seed: 1, strategy: "workers" },
    ...{ configuration, actors: {}, device: "reference", deno: "2.9.6" },
  },
  { end: 0, isolate: 0 },
];

/** Writes a journal; returns its path. */
async function write(folder: string, records: readonly Forged[]): Promise<string> {
  const path = join(folder, "strange.jsonl");
  await Deno.writeTextFile(path, sealed(records));
  return path;
}

Deno.test("a journal imports no module: the user names it, or it is refused", async () => {
  await inFolder(async (folder) => {
    const trap = join(folder, "trap.ts"), sprung = join(folder, "sprung");
    const text = `Deno.writeTextFileSync(${JSON.stringify(sprung)}, "");
      export const scenario = ({ idle }) => idle();`;
    await Deno.writeTextFile(trap, text);
    const modules = [trap, pathToFileURL(trap).href, `data:text/javascript,${encodeURI(text)}`];
    for (const explore of [...modules, "http://127.0.0.1:9/trap.ts", "npm:left-pad"]) {
      const path = await write(folder, journalOf({ explore, configuration: {}, faults: [] }));
      await refused(/--module must name the file that the run read/, path);
      await assert.rejects(Deno.stat(sprung), Deno.errors.NotFound);
    }
    const path = await write(folder, journalOf({ explore: trap, configuration: {}, faults: [] }));
    const { code } = await runTroupe(["replay", path, "--module", trap, "--code-changed"]);
    assert.equal(code, 0);
    await Deno.stat(sprung);
  });
});

Deno.test("a journal opens no file: what the run read is named again, and only that", async () => {
  await inFolder(async (folder) => {
    for (const flag of ["text", "tokens", "weights", "schedule-file", "resume"]) {
      const path = await write(folder, journalOf({ train: [...TINY, `--${flag}`, "/dev/zero"] }));
      await refused(new RegExp(`--${flag} must name the file .* --${flag} /dev/zero$`, "m"), path);
    }
    const path = await write(folder, journalOf({ train: [...TINY, "--steps", "1"] }));
    await refused(/--text must be left out, as in the recorded run/, path, "--text", "/dev/zero");
    const rehearsed = { explore: "1f1b", configuration: { schedule: "1f1b" }, faults: [] };
    const other = await write(folder, journalOf(rehearsed));
    await refused(/--text must be left out/, other, "--text", "/dev/zero");
  });
});

Deno.test("a run on a file of one's own replays where the file is named, and writes nowhere", async () => {
  await inFolder(async (folder) => {
    const text = join(folder, "my text.txt"), journal = join(folder, "run.jsonl");
    const out = join(folder, "out");
    await Deno.writeTextFile(
      text,
      "It was the best of times, it was the worst of times. ".repeat(40),
    );
    const flags = [...TINY, "--steps", "2", "--journal", journal, "--out", out];
    const { last } = await trainJson([...flags, "--text", text]);
    const before = await Deno.readTextFile(journal);
    await Deno.remove(out, { recursive: true });
    await refused(/--text '.*my text\.txt'$/m, journal);
    const { code, stdout, stderr } = await runTroupe(["replay", journal, "--text", text]);
    assert.equal(code, 0, stderr);
    assert.ok(stdout.includes(String(last.weightsHash)));
    assert.equal(await Deno.readTextFile(journal), before);
    await assert.rejects(Deno.stat(out), Deno.errors.NotFound);
  });
});

Deno.test("what a journal asks for is bounded, checked as if it were typed, and of known kinds", async () => {
  await inFolder(async (folder) => {
    const ask = async (configuration: unknown, ...args: string[]): Promise<Outcome> =>
      await runTroupe(["replay", await write(folder, journalOf(configuration)), ...args]);
    const plan = (more: object) => ({
      explore: "1f1b",
      configuration: { schedule: "1f1b", ...more },
      faults: [],
    });
    const wrong = [
      null,
      7,
      { train: "--steps 1" },
      { train: [7] },
      { train: Array(1000).fill("--json") },
      { train: ["--lr", "-5"] },
      { train: ["--steps", "1e99"] },
      { train: ["--no-such-flag"] },
      { train: ["rest"] },
      { explore: 7 },
      plan({ workers: 1e9 }),
      plan({ workers: "4" }),
      plan({ steps: 1000, microBatches: 1000 }),
      plan({ options: { chunks: 1e9 } }),
      plan({ schedule: "gpipe" }),
      { ...plan({}), faults: "crash" },
      { ...plan({}), faults: [{ step: -1, kind: "crash-before", target: "worker-0" }] },
      { ...plan({}), faults: [{ step: 1, kind: {}, target: "worker-0" }] },
    ];
    for (const configuration of wrong) {
      const { code, stderr } = await ask(configuration);
      assert.equal(code, 2, `${JSON.stringify(configuration)}: ${stderr}`);
      assert.match(stderr, /^Cannot replay[^\n]+\n$/);
    }
    const large = ["--hidden", "2048", "--layers", "12", "--heads", "16", "--seq", "8"];
    const { code, stderr } = await ask(
      { train: [...large, "--device", "reference"] },
      "--code-changed",
    );
    assert.equal(code, 1);
    assert.match(
      stderr,
      /Cannot train within the memory limit: each worker must need at most 2048/,
    );
  });
});

Deno.test("an actor alone takes device, faults and models from no journal", async () => {
  await inFolder(async (folder) => {
    const journal = join(folder, "run.jsonl");
    await trainJson([...TINY, "--steps", "1", "--journal", journal, "--journal-messages"]);
    const records = recordsOf(await Deno.readTextFile(journal));
    const { payloads, steps } = await readJournal(journal);
    const first = steps.find(({ actor }) => actor === "worker-0")!;
    // deno-lint-ignore no-explicit-any -- It is a forger who writes here.
    const forge = async (change: (init: any) => void): Promise<string> => {
      const message = structuredClone(payloads.get(first.payload)) as { init: unknown };
      change(message.init);
      // What such a message is after it was sent, which is what its digest is of.
      const { decodePayload } = await import("../../../actors/simulation/journal/payload_codec.ts");
      const decoded = decodePayload(message), payload = digestOf(decoded);
      return await write(
        folder,
        records.map((record) =>
          record.payload !== first.payload
            ? record
            : { ...record, payload, ..."is" in record && { is: encodePayload(decoded) } }
        ),
      );
    };
    const replay = (path: string) => runTroupe(["replay", path, "--actor", "worker-0"]);
    const library = join(folder, "evil.so");
    await Deno.writeTextFile(library, "not a library");
    const tamed = await replay(
      await forge((init) => {
        init.device.library = library;
        init.fault = { worker: 0, kind: "exit", afterActions: 0 };
      }),
    );
    assert.equal(tamed.code, 0, tamed.stderr);
    assert.match(tamed.stdout, /^worker-0: \d+ messages, \d+ doings and \d+ states as recorded/);
    const elsewhere = await forge((init) => {
      const [program] = init.held[0].program.programs;
      program.models.forward = encodePayload(
        new TextEncoder().encode("\x0a\x08location\x12\x05/etc/"),
      );
    });
    await refused(
      /a model of the journal must hold its own data/,
      elsewhere,
      "--actor",
      "worker-0",
    );
    const huge = await forge((init) => {
      init.held[0].program.programs[0].parameters[0].shape = [2 ** 40];
    });
    await refused(/must need at most 4294967296 bytes/, huge, "--actor", "worker-0");
  });
});
