/**
 * `troupe join` lends this machine to a run that meets at a server of NATS; `troupe nats creds`
 * writes what the server and the members of such a run need.
 *
 * @module
 */

import { checkNew, writeNewFolder } from "../../actors/checkpoints/write.ts";
import { SECONDS } from "../../actors/options/train_fields.ts";
import { JOIN_MS, lendHost } from "../../actors/run/nats_run.ts";
import { isRunName, makeCredentials } from "../../actors/transports/nats/connection.ts";
import { ensure, inOneLine, print, printError, quoted } from "../terminal.ts";
import { checkCount, checkWord, type Command, defineCommand } from "./common.ts";

const RUN_NAME = {
  kind: "text",
  otherwise: "required",
  help: "name of the run: letters, digits, - and _",
} as const;

const JOIN_FLAGS = {
  "run-name": RUN_NAME,
  "nats-creds": {
    kind: "path",
    otherwise: "required",
    help: "credentials of this host, which troupe nats creds has written",
  },
  "join-timeout": {
    ...SECONDS,
    default: JOIN_MS / 1000,
    help: "time within which the run must answer",
  },
} as const;

/** `troupe join`. */
export const joinCommand: Command = defineCommand({
  name: "join",
  summary: "lends this machine to a run of --runtime nats",
  usage: ["URL --run-name NAME --nats-creds FILE [--join-timeout SECONDS]"],
  about: [
    "Joins the run NAME at the server URL, and computes for it until it is over. It needs no data and",
    "no files of the run, but the same versions of Troupe and Deno, and a CPU of the same kind.",
    "It runs what the leader of the run sends, so join only a run that you trust.",
  ],
  flags: JOIN_FLAGS,
  notes: [
    "On Ctrl-C or SIGTERM it leaves after the step under way.",
    "",
    "Exit codes: 0 the run is over, or this host has left; 2 bad input; 1 refused by the run; 75 the",
    "run is lost: join again.",
  ],
  needsArguments: true,
  run: async ({ words, flags }, { begin, signal }) => {
    checkCount("join", "addresses of a server", words.length, [1]);
    const { "run-name": run, "nats-creds": credentials, "join-timeout": seconds } = flags;
    checkRunName("join", run);
    ensure(credentials, "join", "--nats-creds must name a file");
    begin("");
    await lendHost({
      ...{ url: words[0]!, run, credentials, signal, announce: printError },
      joinMs: 1000 * seconds,
    });
  },
});

function checkRunName(cannot: string, name: string | undefined): asserts name is string {
  const must = "--run-name must be at most 64 letters, digits, - and _";
  const received = name === undefined ? "none" : quoted(name);
  ensure(name !== undefined && isRunName(name), cannot, must, received);
}

const CREDS_FLAGS = {
  "run-name": RUN_NAME,
  hosts: { kind: "integer", maximum: 4096, default: 8, help: "hosts that may join the run" },
  listen: {
    kind: "text",
    value: "ADDRESS:PORT",
    default: "127.0.0.1:4222",
    help: "where the server listens; 0.0.0.0:4222 is every network of its machine",
  },
  out: { kind: "path", value: "DIR", default: "nats", help: "new folder of the files" },
} as const;

/** `troupe nats`. */
export const natsCommand: Command = defineCommand({
  name: "nats",
  summary: "writes the configuration of a server of NATS, and credentials of a run's hosts",
  usage: ["creds --run-name NAME [--hosts N] [--listen ADDRESS:PORT] [--out DIR]"],
  about: [
    "Writes DIR/server.conf for nats-server, DIR/leader.creds for troupe train --runtime nats, and",
    "DIR/host-1.creds and so on, one for each troupe join. Keep them secret, and give each host its",
    "own: it may publish under its own number only.",
  ],
  words: ["creds"],
  flags: CREDS_FLAGS,
  notes: ["Exit codes: 0 written; 1 they cannot be written; 2 bad input."],
  needsArguments: true,
  run: async ({ words, flags }, { begin }) => {
    const { "run-name": run, hosts, listen, out } = flags;
    checkCount("write credentials", "words", words.length, [1]);
    checkWord("nats", words[0]!, ["creds"]);
    checkRunName("write credentials", run);
    const isAddress = /^[\w.:[\]-]+:\d+$/.test(listen) && URL.canParse(`nats://${listen}`);
    const must = "--listen must be an address and a port, such as 0.0.0.0:4222";
    ensure(isAddress, "write credentials", must, quoted(listen));
    await checkNew(out, "folder");
    begin();
    const { server, members } = await makeCredentials(run, hosts, listen);
    if (Deno.build.os !== "windows") Deno.umask(0o077); // only this user may read the files
    await writeNewFolder(out, async (files) => {
      await files.write("server.conf", [new TextEncoder().encode(server)]);
      for (const [number, credentials] of members.entries()) {
        await files.write(number === 0 ? "leader.creds" : `host-${number}.creds`, [credentials]);
      }
    });
    const files = `server.conf, leader.creds and the credentials of ${hosts} hosts`;
    print(inOneLine(`Wrote ${files} to ${out}`));
  },
});
