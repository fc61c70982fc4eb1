/** One model for each operation that Troupe uses, of any size, to compare devices with. */

import { MICROSOFT, ONNX_DTYPE } from "../../../kernels/graph/value.ts";
import {
  bool,
  type Cases,
  f16,
  f32,
  i32,
  index,
  ints,
  of,
  type Operand,
  type OperatorCase,
  out,
  positive,
  type Shape,
  type Sizes,
} from "./operands.ts";

function elementwise(): Cases {
  const cases: Cases = {};
  const smooth = [
    "Identity",
    "Neg",
    "Exp",
    "Tanh",
    "Erf",
    "Sigmoid",
    "Relu",
    "Sin",
    "Cos",
    "Softplus",
  ];
  for (const op of [...smooth, "HardSwish", "Abs", "Sign", "Floor", "Ceil", "Round"]) {
    cases[op] = ({ n, m }) => ({ op, inputs: [f32(n, m)], outputs: [out([n, m])] });
  }
  for (const op of ["Sin", "Cos"]) {
    cases[`${op} of large numbers`] = ({ n, m }) => ({
      op,
      inputs: [of([n, m], "f32", -300, 300)],
      outputs: [out([n, m])],
    });
  }
  for (const op of ["Log", "Sqrt", "Reciprocal"]) {
    cases[op] = ({ n, m }) => ({ op, inputs: [positive(n, m)], outputs: [out([n, m])] });
  }
  for (const op of ["Add", "Sub", "Mul", "Div", "Pow"]) {
    cases[op] = ({ b, n, m }) => ({
      op,
      inputs: [positive(b, n, m), positive(n, 1)],
      outputs: [out([b, n, m])],
    });
    if (op === "Pow") continue;
    cases[`${op} of i32`] = ({ n, m }) => ({
      op,
      inputs: [i32(n, m), of([m], "i32", 1, 9)],
      outputs: [out([n, m], "i32")],
    });
  }
  cases["Add of f16"] = ({ n, m }) => ({
    op: "Add",
    inputs: [f16(n, m), f16()],
    outputs: [out([n, m], "f16")],
  });
  for (const op of ["Add", "Sub", "Mul", "Div"]) {
    cases[`${op} of i64`] = ({ n }) => ({
      op,
      inputs: [of([n], "i64", -1000, 1000), of([n], "i64", 1, 1000)],
      outputs: [out([n], "i64")],
    });
  }
  for (const op of ["Min", "Max", "Mod"]) {
    for (const dtype of ["f32", "i32", "i64"] as const) {
      cases[`${op} of ${dtype}`] = ({ n, m }) => ({
        op,
        inputs: [of([n, m], dtype, -3, 9), of([m], dtype, 1, 5)],
        outputs: [out([n, m], dtype)],
        ...op === "Mod" && dtype === "f32" && { attributes: { fmod: 1 } },
      });
    }
  }
  return cases;
}

function choices(): Cases {
  const cases: Cases = {};
  for (const op of ["Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"]) {
    for (const dtype of ["f32", "i32", "i64"] as const) {
      cases[`${op} of ${dtype}`] = ({ n, m }) => ({
        op,
        inputs: [of([n, m], dtype, -2, 2), of([n, 1], dtype, -2, 2)],
        outputs: [out([n, m], "bool")],
      });
    }
  }
  for (const op of ["And", "Or", "Xor", "Equal"]) {
    cases[`${op} of bool`] = ({ n, m }) => ({
      op,
      inputs: [bool(n, m), bool(m)],
      outputs: [out([n, m], "bool")],
    });
  }
  cases["IsNaN"] = () => ({
    op: "IsNaN",
    inputs: [{ shape: [4], dtype: "f32", constant: [1, NaN, Infinity, -0] }],
    outputs: [out([4], "bool")],
  });
  cases["Not"] = ({ n }) => ({ op: "Not", inputs: [bool(n)], outputs: [out([n], "bool")] });
  for (const dtype of ["f32", "i32", "i64"] as const) {
    cases[`Where of ${dtype}`] = ({ n, m }) => ({
      op: "Where",
      inputs: [bool(n, m), of([n, m], dtype, -9, 9), of([], dtype, -9, 9)],
      outputs: [out([n, m], dtype)],
    });
  }
  return cases;
}

function activations(): Cases {
  const cases: Cases = {};
  for (const approximate of ["none", "tanh"]) {
    cases[`Gelu ${approximate}`] = ({ n, m }) => ({
      op: "Gelu",
      inputs: [f32(n, m)],
      outputs: [out([n, m])],
      attributes: { approximate },
    });
  }
  for (const op of ["HardSigmoid", "LeakyRelu", "Elu"]) {
    cases[op] = ({ n, m }) => ({
      op,
      inputs: [f32(n, m)],
      outputs: [out([n, m])],
      attributes: { alpha: { float: 0.3 } },
    });
  }
  cases["PRelu"] = ({ n, m }) => ({
    op: "PRelu",
    inputs: [f32(n, m), f32(m)],
    outputs: [out([n, m])],
  });
  cases["Clip"] = ({ n, m }) => ({
    op: "Clip",
    inputs: [
      f32(n, m),
      ...[-0.5, 1].map((bound): Operand => ({ shape: [], dtype: "f32", constant: [bound] })),
    ],
    outputs: [out([n, m])],
  });
  cases["FastGelu"] = ({ n, m }) => ({
    op: "FastGelu",
    domain: MICROSOFT,
    inputs: [f32(n, m), f32(m)],
    outputs: [out([n, m])],
  });
  cases["QuickGelu"] = ({ n, m }) => ({
    op: "QuickGelu",
    domain: MICROSOFT,
    inputs: [f32(n, m)],
    outputs: [out([n, m])],
    attributes: { alpha: { float: 1.5 } },
  });
  for (
    const [from, to] of [
      ["f32", "f16"],
      ["f16", "f32"],
      ["f32", "i32"],
      ["f32", "i64"],
      ["i32", "f32"],
      ["i64", "i32"],
      ["i32", "i64"],
      ["i32", "bool"],
      ["bool", "f32"],
      ["bool", "i64"],
      ["i64", "f32"],
    ] as const
  ) {
    cases[`Cast of ${from} to ${to}`] = ({ n, m }) => ({
      op: "Cast",
      inputs: [from === "bool" ? bool(n, m) : of([n, m], from, -3, 3)],
      outputs: [out([n, m], to)],
      attributes: { to: ONNX_DTYPE[to] },
    });
  }
  return cases;
}

/** Movements of what is no f32: indices and masks. */
function wholeMovement(): Cases {
  const cases: Cases = {};
  for (const dtype of ["i32", "i64", "bool"] as const) {
    const whole = (...shape: Shape) => of(shape, dtype, 0, dtype === "bool" ? 1 : 9);
    const add = (name: string, make: (sizes: Sizes) => OperatorCase) =>
      cases[`${name} of ${dtype}`] = make;
    add("Slice", ({ n, m }) => ({
      op: "Slice",
      inputs: [whole(n, 2 * m, 3), ints(0, 1), ints(1000, 3), ints(1, 2), ints(2, 1)],
      outputs: [out([n, m, 2], dtype)],
    }));
    add("Expand", ({ b, n, m }) => ({
      op: "Expand",
      inputs: [whole(n, 1), ints(b, n, m)],
      outputs: [out([b, n, m], dtype)],
    }));
    add("Concat", ({ n, m, k }) => ({
      op: "Concat",
      inputs: [whole(n, k), whole(m, k)],
      outputs: [out([n + m, k], dtype)],
      attributes: { axis: 0 },
    }));
    add("Transpose", ({ n, m }) => ({
      op: "Transpose",
      inputs: [whole(n, m)],
      outputs: [out([m, n], dtype)],
      attributes: { perm: [1, 0] },
    }));
    add("Gather", ({ n, m, k }) => ({
      op: "Gather",
      inputs: [whole(n, m), index(n, "i32", k)],
      outputs: [out([k, m], dtype)],
    }));
  }
  return cases;
}

function sums(): Cases {
  const cases: Cases = {};
  for (const exclusive of [0, 1]) {
    for (const reverse of [0, 1]) {
      cases[`CumSum exclusive ${exclusive}, reverse ${reverse}`] = ({ b, n, m }) => ({
        op: "CumSum",
        inputs: [f32(b, n, m), { shape: [], dtype: "i64", constant: [1] }],
        outputs: [out([b, n, m])],
        attributes: { exclusive, reverse },
      });
    }
  }
  cases["CumSum of i32"] = ({ n, m }) => ({
    op: "CumSum",
    inputs: [i32(n, m), { shape: [], dtype: "i64", constant: [-1] }],
    outputs: [out([n, m], "i32")],
  });
  return cases;
}

function movement(): Cases {
  return {
    Reshape: ({ n, m, k }) => ({
      op: "Reshape",
      inputs: [f32(n, m, k), ints(0, -1)],
      outputs: [out([n, m * k])],
    }),
    Transpose: ({ b, n, m, k }) => ({
      op: "Transpose",
      inputs: [f32(b, n, m, k)],
      outputs: [out([b, m, n, k])],
      attributes: { perm: [0, 2, 1, 3] },
    }),
    Expand: ({ b, n, m }) => ({
      op: "Expand",
      inputs: [f32(n, 1), ints(b, n, m)],
      outputs: [out([b, n, m])],
    }),
    "Split into equal parts": ({ n, m }) => ({
      op: "Split",
      inputs: [f32(n, 3 * m)],
      outputs: [out([n, m]), out([n, m]), out([n, m])],
      attributes: { axis: 1, num_outputs: 3 },
    }),
    "Split into given parts": ({ n, m, k }) => ({
      op: "Split",
      inputs: [f32(n + k, m), ints(n, k)],
      outputs: [out([n, m]), out([k, m])],
      attributes: { axis: 0 },
    }),
    Concat: ({ b, n, m, k }) => ({
      op: "Concat",
      inputs: [f32(b, n, k), f32(b, m, k)],
      outputs: [out([b, n + m, k])],
      attributes: { axis: -2 },
    }),
    Slice: ({ n, m }) => ({
      op: "Slice",
      inputs: [f32(n, m + 2), ints(1), ints(-1), ints(1), ints(1)],
      outputs: [out([n, m])],
    }),
    "Slice backwards": ({ n, m }) => ({
      op: "Slice",
      inputs: [f32(n, 2 * m), ints(-1), ints(-1000), ints(1), ints(-2)],
      outputs: [out([n, m])],
    }),
  };
}

function gathers(): Cases {
  const cases: Cases = {};
  for (const dtype of ["i32", "i64"] as const) {
    cases[`Gather by ${dtype}`] = ({ b, n, m, k }) => ({
      op: "Gather",
      inputs: [f32(n, m), index(n, dtype, b, k)],
      outputs: [out([b, k, m])],
    });
    cases[`Gather along the last axis by ${dtype}`] = ({ b, n, m, k }) => ({
      op: "Gather",
      inputs: [f32(b, n, m), index(m, dtype, k)],
      outputs: [out([b, n, k])],
      attributes: { axis: -1 },
    });
    cases[`GatherElements by ${dtype}`] = ({ n, m }) => ({
      op: "GatherElements",
      inputs: [f32(n, m), index(m, dtype, n, 1)],
      outputs: [out([n, 1])],
      attributes: { axis: 1 },
    });
    cases[`ScatterElements by ${dtype}`] = ({ n, m }) => ({
      op: "ScatterElements",
      inputs: [f32(n, m), index(m, dtype, n, 1), f32(n, 1)],
      outputs: [out([n, m])],
      attributes: { axis: 1 },
    });
    cases[`ScatterElements with add by ${dtype}`] = ({ n, m, k }) => ({
      op: "ScatterElements",
      inputs: [f32(n, m), index(n, dtype, k, m), f32(k, m)],
      outputs: [out([n, m])],
      attributes: { axis: 0, reduction: "add" },
    });
  }
  cases["ScatterND"] = ({ n, m }) => ({
    op: "ScatterND",
    inputs: [f32(n, m), index(n, "i64", 1, 1), f32(1, m)],
    outputs: [out([n, m])],
  });
  cases["ScatterND with add"] = ({ b, n, m, k }) => ({
    op: "ScatterND",
    inputs: [f32(n, m), index(n, "i64", b, k, 1), f32(b, k, m)],
    outputs: [out([n, m])],
    attributes: { reduction: "add" },
  });
  return cases;
}

function reductions(): Cases {
  const cases: Cases = {};
  const all = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL2"];
  for (const op of [...all, "ReduceLogSumExp"]) {
    cases[op] = ({ b, n, m }) => ({
      op,
      inputs: [f32(b, n, m), ints(0, -1)],
      outputs: [out([n])],
      attributes: { keepdims: 0 },
    });
    cases[`${op} of one axis, kept`] = ({ b, n, m }) => ({
      op,
      inputs: [f32(b, n, m), ints(1)],
      outputs: [out([b, 1, m])],
    });
    cases[`${op} of all axes`] = ({ n, m }) => ({
      op,
      inputs: [f32(n, m)],
      outputs: [out([])],
      attributes: { keepdims: 0 },
    });
  }
  for (const dtype of ["f32", "i32"] as const) { // Whole numbers are often equal.
    cases[`ArgMax of ${dtype}`] = ({ b, n, m }) => ({
      op: "ArgMax",
      inputs: [of([b, n, m], dtype, -2, 2)],
      outputs: [out([b, m], "i64")],
      attributes: { axis: 1, keepdims: 0 },
    });
  }
  for (const op of ["Softmax", "LogSoftmax"]) {
    cases[op] = ({ b, n, m }) => ({ op, inputs: [f32(b, n, m)], outputs: [out([b, n, m])] });
    cases[`${op} of an inner axis`] = ({ b, n, m }) => ({
      op,
      inputs: [f32(b, n, m)],
      outputs: [out([b, n, m])],
      attributes: { axis: 1 },
    });
  }
  // Rows of two may be nearly equal: an error of their difference grows by up to 1/√epsilon.
  cases["LayerNormalization"] = ({ b, n, m }) => ({
    op: "LayerNormalization",
    inputs: [f32(b, n, m + 1), f32(m + 1), f32(m + 1)],
    outputs: [out([b, n, m + 1]), out([b, n, 1]), out([b, n, 1])],
    attributes: { axis: -1, epsilon: { float: 0.25 } },
  });
  cases["SimplifiedLayerNormalization"] = ({ b, n, m }) => ({
    op: "SimplifiedLayerNormalization",
    inputs: [f32(b, n, m + 1), f32(m + 1)],
    outputs: [out([b, n, m + 1])],
    attributes: { axis: -1, epsilon: { float: 0.25 } },
  });
  for (const dtype of ["i32", "i64"] as const) {
    for (const reduction of ["none", "sum", "mean"]) {
      cases[`SoftmaxCrossEntropyLoss ${reduction} by ${dtype}`] = ({ n, m }) => ({
        op: "SoftmaxCrossEntropyLoss",
        inputs: [f32(n, m), index(m, dtype, n)],
        outputs: [out(reduction === "none" ? [n] : []), out([n, m])],
        attributes: { reduction },
      });
    }
  }
  return cases;
}

function products(): Cases {
  const cases: Cases = {
    MatMul: ({ n, m, k }) => ({
      op: "MatMul",
      inputs: [f32(n, k), f32(k, m)],
      outputs: [out([n, m])],
    }),
    "MatMul of batches": ({ b, n, m, k }) => ({
      op: "MatMul",
      inputs: [f32(b, 2, n, k), f32(2, k, m)],
      outputs: [out([b, 2, n, m])],
    }),
    "MatMul of f16": ({ n, m, k }) => ({
      op: "MatMul",
      inputs: [f16(n, k), f16(k, m)],
      outputs: [out([n, m], "f16")],
    }),
    "Gemm with a bias": ({ n, m, k }) => ({
      op: "Gemm",
      inputs: [f32(n, k), f32(k, m), f32(m)],
      outputs: [out([n, m])],
    }),
  };
  for (const transA of [0, 1]) {
    for (const transB of [0, 1]) {
      const name = `transA ${transA}, transB ${transB}`;
      const left = (n: number, k: number) => transA ? [k, n] : [n, k];
      const right = (k: number, m: number) => transB ? [m, k] : [k, m];
      cases[`FusedMatMul ${name}`] = ({ b, n, m, k }) => ({
        op: "FusedMatMul",
        domain: MICROSOFT,
        inputs: [f32(b, ...left(n, k)), f32(b, ...right(k, m))],
        outputs: [out([b, n, m])],
        attributes: { transA, transB, alpha: { float: 0.5 } },
      });
      cases[`Gemm ${name}`] = ({ n, m, k }) => ({
        op: "Gemm",
        inputs: [f32(...left(n, k)), f32(...right(k, m)), f32(n, m)],
        outputs: [out([n, m])],
        attributes: { transA, transB, alpha: { float: 0.5 }, beta: { float: 2 } },
      });
    }
  }
  return cases;
}

/** The cases by name; a name begins with its operation. */
export const OPERATOR_CASES: Cases = {
  ...elementwise(),
  ...choices(),
  ...activations(),
  ...movement(),
  ...wholeMovement(),
  ...gathers(),
  ...reductions(),
  ...sums(),
  ...products(),
};
