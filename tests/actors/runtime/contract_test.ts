import { runContract } from "./contract.ts";
import { neighbours } from "./contract/neighbours.ts";
import { register } from "./contract/suite.ts";

runContract({ isolate: "local" });
runContract({ isolate: "worker" });
runContract({ isolate: "process" });

register({ isolate: "worker" }, neighbours("worker", "process"));
register({ isolate: "process" }, neighbours("process", "worker"));
