/**
 * The machine of AxoNN's paper.
 *
 * @module
 */

import { assumed, fitted, GB_PER_S, type PaperMachine, stated, usable } from "./paper_machine.ts";

/** Summit: six V100 in a node, MPI from GPU to GPU, NCCL for gradients (AxoNN). */
export const SUMMIT: PaperMachine = {
  name: "Summit: V100, NVLink, InfiniBand",
  gpus: 384,
  nodeSize: stated(6, "AxoNN, section VI: two processors with three V100 each"),
  memoryBytes: usable(16, "AxoNN, section VI"),
  peakFlops: stated(125e12, "AxoNN, section VI: half precision"),
  topShare: fitted(
    0.57,
    "AxoNN, section V-B: 34.05 s of the pipeline with G_inter = 6, micro-batches of one sample",
  ),
  halfTokens: assumed(0, "512 tokens of 4,512 numbers or more fill the chip already"),
  activationFactor: assumed(1, "recomputation keeps the outputs of layers, which are counted"),
  link: stated({ latencyMs: 0.01, bytesPerMs: 12.5 * GB_PER_S }, "AxoNN, section VI: 12.5 GB/s"),
  local: stated({ latencyMs: 0.01, bytesPerMs: 50 * GB_PER_S }, "AxoNN, section VI: 50 GB/s"),
  reduceLink: fitted(
    { latencyMs: 0.05, bytesPerMs: 9.65 / 6 * GB_PER_S },
    "AxoNN, section V-B: 0.62 s of data parallelism with G_data = 2; six stages of a node share its " +
      "network",
  ),
  hostLink: stated(
    { latencyMs: 0.01, bytesPerMs: 50 * GB_PER_S },
    "AxoNN, section VI: NVLink between processor and GPU, 50 GB/s",
  ),
  isBlocking: stated(false, "AxoNN, section IV-A: MPI_Isend and MPI_Irecv"),
  dispatchMs: fitted(
    6.8,
    "AxoNN, section V-B: 46.08 s with G_inter = 24 beside 34.05 s with G_inter = 6",
  ),
};
