import { runContract } from "./contract.ts";

runContract({ isolate: "local" });
runContract({ isolate: "worker" });
runContract({ isolate: "process" });
