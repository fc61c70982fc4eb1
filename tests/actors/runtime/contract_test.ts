import { runContract } from "./contract.ts";

runContract("local");
runContract("worker");
runContract("process");
