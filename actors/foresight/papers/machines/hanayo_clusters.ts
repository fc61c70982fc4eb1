/**
 * The machines of Hanayo's paper, where PyTorch talks by NCCL.
 *
 * @module
 */

import {
  assumed,
  documented,
  fitted,
  GB_PER_S,
  type PaperMachine,
  stated,
  TILE_TOKENS,
  usable,
} from "./paper_machine.ts";

const A100_FLOPS = documented(312e12, "NVIDIA A100 data sheet: 16-bit tensor cores");

const nccl = (gigabytesPerS: number, source: string) =>
  assumed({ latencyMs: 0.02, bytesPerMs: gigabytesPerS * GB_PER_S }, source);

const hanayoMachine = (
  name: string,
  gpus: number,
  nodeSize: number,
  memory: number,
  more: Pick<PaperMachine, "link" | "local" | "peakFlops">,
): PaperMachine => ({
  name,
  gpus,
  nodeSize: stated(nodeSize, "Hanayo, section 5"),
  memoryBytes: usable(memory, "Hanayo, section 5"),
  topShare: assumed(0.5, "16-bit matrix products, the rest of a layer bound by memory"),
  halfTokens: TILE_TOKENS,
  activationFactor: assumed(1, "the paper does not say what is kept"),
  isBlocking: stated(false, "Hanayo, section 4.2: asynchronous, and received ahead of time"),
  dispatchMs: fitted(
    0.27,
    "Hanayo, section 5.2: 23.2 % over Chimera-wave on eight A100 that are fully connected",
  ),
  ...more,
});

/** Hanayo's four clusters (section 5), in the order of its Figure 9. */
export const HANAYO_MACHINES: readonly PaperMachine[] = [
  hanayoMachine("PC: A100, NVLink in pairs", 8, 2, 80, {
    peakFlops: A100_FLOPS,
    local: nccl(250, "NVIDIA A100 data sheet: NVLink, 300 GB/s each way, of which NCCL has 250"),
    link: nccl(20, "PCI Express 4.0 x16, 32 GB/s, of which NCCL has 20"),
  }),
  hanayoMachine("FC: A100, NVLink between all", 8, 8, 80, {
    peakFlops: A100_FLOPS,
    local: nccl(250, "NVIDIA A100 data sheet: NVLink, 300 GB/s each way, of which NCCL has 250"),
    link: nccl(250, "as within the node: there is one"),
  }),
  hanayoMachine("TACC: A100, Lonestar6", 32, 3, 40, {
    peakFlops: A100_FLOPS,
    local: nccl(20, "PCI Express 4.0 x16, 32 GB/s, of which NCCL has 20"),
    link: nccl(10, "TACC, Lonestar6 user guide: InfiniBand HDR, of which NCCL by the host has 10"),
  }),
  hanayoMachine("TC: V100, NVLink", 8, 8, 32, {
    peakFlops: documented(125e12, "NVIDIA Tesla V100 SXM2 data sheet: tensor cores"),
    local: nccl(120, "NVIDIA V100 white paper: NVLink, 150 GB/s each way, of which NCCL has 120"),
    link: nccl(120, "as within the node: there is one"),
  }),
];
