/**
 * Operations that normalise along axes.
 *
 * @module
 */

import { one, type Value } from "../value.ts";
import { elementCount, positiveAxis } from "../shapes.ts";
import { ResizingGraph } from "./resizing.ts";

/** A graph to which normalisations are added. */
export class NormalizationGraph extends ResizingGraph {
  /** Softmax over an axis. */
  softmax(a: Value, axis = -1): Value {
    return one(this, "Softmax", [a], a.shape, { axis: positiveAxis(axis, a.shape.length) });
  }
  /** ln softmax over an axis. */
  logSoftmax(a: Value, axis = -1): Value {
    return one(this, "LogSoftmax", [a], a.shape, { axis: positiveAxis(axis, a.shape.length) });
  }
  /** LayerNorm over the last axis (Ba, Kiros, Hinton 2016). */
  layerNorm(x: Value, weight: Value, bias: Value, epsilon = 1e-5): Value {
    const stats = { shape: [...x.shape.slice(0, -1), 1], dtype: "f32" as const };
    return this.node("LayerNormalization", [x, weight, bias], [x.shape, stats, stats], {
      axis: -1,
      epsilon: { float: epsilon },
    })[0]!;
  }

  /** RMSNorm over the last axis (Zhang, Sennrich 2019): x ÷ √(mean of x² + ε) · weight. */
  rmsNorm(x: Value, weight: Value, epsilon = 1e-5): Value {
    return one(this, "SimplifiedLayerNormalization", [x, weight], x.shape, {
      axis: -1,
      epsilon: { float: epsilon },
    });
  }

  /**
   * GroupNorm (Wu, He 2018): each of `groups` parts of the channels of a sample is normalised by its
   * mean and deviation, as of opset 21 of ONNX and in PyTorch.
   *
   * @param x [n, channels, ...]
   * @param weight [channels]
   * @param bias [channels]
   */
  groupNorm(x: Value, groups: number, weight: Value, bias: Value, epsilon = 1e-5): Value {
    const [n = 0, channels = 0, ...sizes] = x.shape;
    if (!Number.isInteger(groups) || groups < 1 || channels % groups !== 0) {
      throw new RangeError(
        `Cannot normalise groups: their number must divide the channels, ${channels}, received ${groups}`,
      );
    }
    const rows = this.reshape(x, [n * groups, elementCount([channels, ...sizes]) / groups]);
    return this.#affine(this.reshape(this.#normal(rows, epsilon), x.shape), weight, bias);
  }

  /** InstanceNorm (Ulyanov, Vedaldi, Lempitsky 2016): GroupNorm where each channel is a group. */
  instanceNorm(x: Value, weight: Value, bias: Value, epsilon = 1e-5): Value {
    return this.groupNorm(x, x.shape[1]!, weight, bias, epsilon);
  }

  /**
   * BatchNorm (Ioffe, Szegedy 2015) by the mean and variance of each channel.
   *
   * With `statistics`, as in inference, these are given, such as those that training has averaged;
   * without, as in training, they are those of this micro-batch (the variance is that of its elements,
   * divided by their number), gradients flow through them, and no running average is kept.
   *
   * @param x [n, channels, ...]
   * @param weight [channels]
   * @param bias [channels]
   */
  batchNorm(
    x: Value,
    weight: Value,
    bias: Value,
    statistics?: { readonly mean: Value; readonly variance: Value },
    epsilon = 1e-5,
  ): Value {
    if (statistics) {
      const { mean, variance } = statistics;
      const deviation = this.sqrt(this.add(variance, this.scalar(epsilon)));
      const centred = this.sub(x, this.#perChannel(mean, x));
      return this.#affine(this.div(centred, this.#perChannel(deviation, x)), weight, bias);
    }
    // Channels first: then each is a row.
    const turn = [1, 0, ...x.shape.slice(2).map((_, axis) => axis + 2)];
    const turned = this.transpose(x, turn), [channels = 0, ...others] = turned.shape;
    const rows = this.reshape(turned, [channels, elementCount(others)]);
    const normal = this.reshape(this.#normal(rows, epsilon), turned.shape);
    return this.#affine(this.transpose(normal, turn), weight, bias);
  }

  /** Each row with mean 0 and deviation 1. */
  #normal(rows: Value, epsilon: number): Value {
    const size = rows.shape[1]!;
    const filled = (value: number) => this.constant(new Float32Array(size).fill(value), [size]);
    return this.layerNorm(rows, filled(1), filled(0), epsilon);
  }

  /** Numbers of channels, to be combined with `x`. */
  #perChannel(numbers: Value, x: Value): Value {
    if (numbers.shape.length !== 1 || numbers.shape[0] !== x.shape[1]) {
      throw new RangeError(
        `Cannot normalise: what is given for channels must be [${
          x.shape[1]
        }], received [${numbers.shape}]`,
      );
    }
    return this.reshape(numbers, [x.shape[1]!, ...x.shape.slice(2).map(() => 1)]);
  }

  #affine(x: Value, weight: Value, bias: Value): Value {
    return this.add(this.mul(x, this.#perChannel(weight, x)), this.#perChannel(bias, x));
  }
}
