import { runContract } from "./contract.ts";
import { neighbours } from "./contract/neighbours.ts";
import { register } from "./contract/suite.ts";
import { TCP_TRANSPORT } from "./tcp_transport.ts";

const place = { isolate: "tcp", transport: TCP_TRANSPORT };

runContract(place);
register(place, neighbours("tcp", "worker"));
register(place, neighbours("process", "tcp"));
