import { runContract } from "./contract.ts";
import { TCP_TRANSPORT } from "./tcp_transport.ts";

runContract({ isolate: "tcp", transport: TCP_TRANSPORT });
