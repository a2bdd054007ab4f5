#!/usr/bin/env python3
"""onnx_small.py -- writes onnx/small_*.onnx, a few nodes each: what the exports of
onnx_models.py do not have.  Made with onnx 1.23.

The shapes that stand as outputs were inferred by onnx.shape_inference or, for the ops of
other domains and where it gives up, are written here by hand.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

F, I, B = T.FLOAT, T.INT64, T.BOOL
MS = "com.microsoft"


def f(name, *shape):
    return nh.from_array(np.zeros(shape, np.float32), name)


def u8(name, *shape):
    return nh.from_array(np.zeros(shape, np.uint8), name)


def i(name, *values):
    return nh.from_array(np.array(values, np.int64), name)


def one(name, value, dtype=np.int64):
    return nh.from_array(np.array(value, dtype), name)


def value(name, shape, t=F):
    return h.make_tensor_value_info(name, t, shape)


def node(op, ins, outs, **kw):
    return h.make_node(op, ins.split(), outs.split(), **kw)


def save(name, nodes, inputs, outputs, inits=(), opset=18, functions=(), ir=8, ms=False):
    graph = h.make_graph(nodes, name, inputs, outputs, list(inits))
    opsets = [h.make_opsetid("", opset)] + ([h.make_opsetid(MS, 1)] if ms else [])
    opsets += [h.make_opsetid("own", 1)] if functions else []
    model = h.make_model(graph, opset_imports=opsets, functions=list(functions),
                         producer_name="onnx_small", ir_version=ir)
    with open(f"{out}/small_{name}.onnx", "wb") as to:
        to.write(model.SerializeToString())


out = sys.argv[1] if len(sys.argv) > 1 else "onnx"

# sizes: a Reshape whose shape is computed from the input's
save("shape_chain",
     [node("Shape", "x", "s"), node("Gather", "s zero", "n", axis=0),
      node("Unsqueeze", "n zeros", "n1"), node("Concat", "n1 rest", "shape", axis=0),
      node("Reshape", "x shape", "y")],
     [value("x", ["batch", 3, 4])], [value("y", ["batch", 12])],
     [one("zero", 0), i("zeros", 0), i("rest", -1)])
save("range_where",
     [node("Shape", "x", "s", start=1, end=2), node("Squeeze", "s", "n"),
      node("Range", "zero n step", "r"), node("Equal", "r two", "is"),
      node("Where", "is zeros r", "w"), node("ReduceMax", "w", "top", keepdims=0),
      node("Unsqueeze", "top axis", "t"), node("ReduceSum", "x", "total", keepdims=0),
      node("Expand", "total t", "e"), node("ConstantOfShape", "t", "c"),
      node("Add", "e c", "y")],
     [value("x", ["batch", 5])], [value("y", [6])],
     [one("zero", 0), one("two", 2), one("step", 1), i("axis", 0), i("zeros", 6)], opset=18)
# operator sets that differ
save("axes7", [node("Unsqueeze", "x", "a", axes=[0, 3]), node("ReduceSum", "a", "y", axes=[1])],
     [value("x", [2, 3])], [value("y", [1, 1, 3, 1])], opset=11)
save("clip_pad", [node("Clip", "x low", "a"), node("Pad", "a pads", "y")],
     [value("x", [1, 2, 3, 3])], [value("y", [1, 2, 5, 6])],
     [one("low", 0, np.float32), i("pads", 0, 0, 1, 1, 0, 0, 1, 2)], opset=13)
# windows
save("conv_same", [node("Conv", "x w b", "a", strides=[2, 2], auto_pad="SAME_UPPER"),
                   node("MaxPool", "a", "y", kernel_shape=[3, 3], strides=[2, 2],
                        pads=[0, 0, 1, 1])],
     [value("x", ["N", 3, 9, 9])], [value("y", ["N", 8, 2, 2])], [f("w", 8, 3, 3, 3), f("b", 8)])
save("conv_transpose", [node("ConvTranspose", "x w", "y", strides=[2, 2],
                             output_padding=[1, 1], pads=[1, 1, 1, 1])],
     [value("x", [1, 4, 5, 5])], [value("y", [1, 6, 10, 10])], [f("w", 4, 6, 3, 3)])
save("resize", [node("Resize", "x  scales", "a", mode="linear"),
                node("Resize", "a   sizes", "y", mode="nearest")],
     [value("x", [1, 2, 4, 4])], [value("y", [1, 2, 5, 7])],
     [nh.from_array(np.array([1, 1, 2, 2], np.float32), "scales"), i("sizes", 1, 2, 5, 7)])
onnx_resize = onnx.load(f"{out}/small_resize.onnx")  # inputs that are left out
onnx_resize.graph.node[0].input[:] = ["x", "", "scales"]
onnx_resize.graph.node[1].input[:] = ["a", "", "", "sizes"]
open(f"{out}/small_resize.onnx", "wb").write(onnx_resize.SerializeToString())
# layers
save("linear", [node("MatMul", "x w", "a"), node("Add", "a b", "c"), node("Sigmoid", "c", "s"),
                node("Mul", "c s", "d"), node("Gemm", "d v", "y", transB=1)],
     [value("x", ["batch", 8])], [value("y", ["batch", 5])],
     [f("w", 8, 16), f("b", 16), f("v", 5, 16)])
save("gelu", [node("Div", "x root", "a"), node("Erf", "a", "b"), node("Add", "b one", "c"),
              node("Mul", "x c", "d"), node("Mul", "d half", "y")],
     [value("x", ["batch", 8])], [value("y", ["batch", 8])],
     [one(n, v, np.float32) for n, v in (("root", 2 ** 0.5), ("one", 1), ("half", 0.5))])
save("shared", [node("Identity", "w", "w2"), node("MatMul", "x w", "a"),
                node("MatMul", "a w2", "b"), node("Transpose", "w", "t"), node("MatMul", "b t", "y")],
     [value("x", ["batch", 8])], [value("y", ["batch", 8])], [f("w", 8, 8)])
save("lstm", [node("LSTM", "x w r b", "y h c", hidden_size=6, direction="bidirectional")],
     [value("x", [7, "batch", 4])],
     [value("y", [7, 2, "batch", 6]), value("h", [2, "batch", 6]), value("c", [2, "batch", 6])],
     [f("w", 2, 24, 4), f("r", 2, 24, 6), f("b", 2, 48)])
save("gru", [node("GRU", "x w r", "y h", hidden_size=6)], [value("x", [7, 3, 4])],
     [value("y", [7, 1, 3, 6]), value("h", [1, 3, 6])], [f("w", 1, 18, 4), f("r", 1, 18, 6)])
save("attention23", [node("Attention", "q k v", "y", q_num_heads=6, kv_num_heads=2,
                          is_causal=1), node("RMSNormalization", "y g", "z")],
     [value("q", ["batch", 10, 48]), value("k", ["batch", 12, 16]), value("v", ["batch", 12, 16])],
     [value("z", ["batch", 10, 48])], [f("g", 48)], opset=23, ir=11)
for name, heads in (("attention_written", 4), ("attention_shared", 1)):
    save(name, [node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), node("Mul", "q r", "qs"),
                node("Mul", "kt r", "ks"), node("MatMul", "qs ks", "s"), node("Add", "s m", "sm"),
                node("Softmax", "sm", "p", axis=-1), node("MatMul", "p v", "y")],
         [value("q", ["batch", 4, 6, 8]), value("k", ["batch", 4, 7, 8]),
          value("v", ["batch", heads, 7, 8]), value("m", [6, 7])],
         [value("y", ["batch", 4, 6, 8])], [one("r", 0.5, np.float32)])
save("group_norm", [node("Reshape", "x three", "a"), node("InstanceNormalization", "a ones zeros", "b"),
                    node("Shape", "x", "s"), node("Reshape", "b s", "c"),
                    node("Unsqueeze", "w axes", "w1"), node("Mul", "c w1", "d"),
                    node("Unsqueeze", "v axes", "v1"), node("Add", "d v1", "y")],
     [value("x", ["batch", 8, 5, 5])], [value("y", ["batch", 8, 5, 5])],
     [i("three", 0, 4, -1), f("ones", 4), f("zeros", 4), f("w", 8), f("v", 8), i("axes", 1, 2)])
save("norm_train", [node("BatchNormalization", "x g b running_mean running_var", "n m v",
                         training_mode=1), node("Dropout", "n p t", "y")],
     [value("x", ["batch", 4, 3, 3])], [value("y", ["batch", 4, 3, 3])],
     [f(n, 4) for n in ("g", "b", "running_mean", "running_var")] +
     [one("p", 0.25, np.float32), one("t", True, np.bool_)])
# quantised
save("qdq", [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d"),
             node("DequantizeLinear", "w s z", "dw"), node("Conv", "d dw", "y")],
     [value("x", ["batch", 3, 8, 8])], [value("y", ["batch", 4, 6, 6])],
     [one("s", 0.5, np.float32), one("z", 0, np.uint8), u8("w", 4, 3, 3, 3)])
save("nbits", [node("MatMulNBits", "x w s", "a", domain=MS, K=64, N=32, bits=4, block_size=32),
               node("SkipLayerNormalization", "a skip g b", "n", domain=MS),
               node("BiasGelu", "n bias", "y", domain=MS)],
     [value("x", ["batch", 6, 64]), value("skip", ["batch", 6, 32])],
     [value("y", ["batch", 6, 32])],
     [u8("w", 32, 2, 16), f("s", 64), f("g", 32), f("b", 32), f("bias", 32)], ms=True)
save("ms_attention", [node("Attention", "x w b", "a", domain=MS, num_heads=4),
                      node("FusedMatMul", "a a", "y", domain=MS, transB=1)],
     [value("x", ["batch", 6, 32])], [value("y", ["batch", 6, 6])], [f("w", 32, 96), f("b", 96)],
     ms=True)
# graphs in nodes, functions, lists
branch = lambda k: h.make_graph([node("Concat", "x " * k, "r", axis=1)], "b", [], [value("r", None)])
save("if", [node("Shape", "x", "s", start=1, end=2), node("Squeeze", "s", "n"),
            node("Greater", "n two", "c"),
            h.make_node("If", ["c"], ["y"], then_branch=branch(3), else_branch=branch(2))],
     [value("x", ["batch", 4])], [value("y", ["batch", 12])], [one("two", 2)])
body = h.make_graph([node("Concat", "acc acc", "next", axis=0), node("Identity", "go", "on"),
                     node("Neg", "next", "each_")], "body",
                    [value("k", [], I), value("go", [], B), value("acc", None)],
                    [value("on", [], B), value("next", None)])
save("loop", [h.make_node("Loop", ["three", "", "x"], ["y"], body=body)],
     [value("x", [2, 5])], [value("y", [16, 5])], [one("three", 3)])
twice = h.make_function("own", "Twice", ["a"], ["b"],
                        [node("Concat", "a a", "t", axis=0), node("Own", "t", "b", domain="own")],
                        [h.make_opsetid("", 18), h.make_opsetid("own", 1)])
leaky = h.make_node("LeakyRelu", ["a"], ["b"])
ref = leaky.attribute.add()
ref.name, ref.ref_attr_name, ref.type = "alpha", "slope", onnx.AttributeProto.FLOAT
own = h.make_function("own", "Own", ["a"], ["b"], [leaky], [h.make_opsetid("", 18)], ["slope"])
save("function", [node("Twice", "x", "y", domain="own")], [value("x", [2, 3])],
     [value("y", [4, 3])], functions=[twice, own])
save("sequence", [node("SplitToSequence", "x two", "s", axis=1), node("SequenceAt", "s one_", "a"),
                  node("SequenceInsert", "s a", "t"), node("ConcatFromSequence", "t", "y", axis=1)],
     [value("x", [2, 6])], [value("y", [2, 8])], [one("two", 2), one("one_", 1)])
# an op that nobody knows, with a size and without
save("unknown", [node("Mystery", "x", "a", domain="own"), node("Relu", "a", "y")],
     [value("x", [2, 3])], [value("y", [2, 7])], functions=[])
m = onnx.load(f"{out}/small_unknown.onnx")
m.opset_import.append(h.make_opsetid("own", 1))
m.graph.output[0].type.tensor_type.ClearField("shape")
open(f"{out}/small_lost.onnx", "wb").write(m.SerializeToString())
m.graph.output[0].CopyFrom(value("y", [2, 7]))
m.graph.value_info.append(value("a", [2, 7]))
open(f"{out}/small_unknown.onnx", "wb").write(m.SerializeToString())
save("beside", [node("Gemm", "x w", "h"), node("Mystery", "h", "a", domain="own"),
                node("Relu", "a", "b"), node("Relu", "h", "y")],
     [value("x", ["batch", 8])], [value("y", ["batch", 8]), value("b", None)], [f("w", 8, 8)])
m = onnx.load(f"{out}/small_beside.onnx")
m.opset_import.append(h.make_opsetid("own", 1))
open(f"{out}/small_beside.onnx", "wb").write(m.SerializeToString())
# weights beside the file; one of them says that it is elsewhere
w = onnx.TensorProto(name="w", data_type=F, dims=[1000, 8])
w.data_location = T.EXTERNAL
for k, v in (("location", "../../etc/passwd"), ("offset", "0"), ("length", "32000")):
    w.external_data.add(key=k, value=v)
save("external", [node("MatMul", "x w", "y")], [value("x", ["batch", 1000])],
     [value("y", ["batch", 8])], [w])
# sizes with names and expressions; weights as inputs, up to IR 3
save("dims", [node("Concat", "a b", "y", axis=1)],
     [value("a", ["n", "s0", 4]), value("b", ["n", "2*s0", 4])], [value("y", ["n", "3*s0", 4])])
save("ir3", [node("Gemm", "x w b", "y")], [value("x", [2, 8]), value("w", [8, 3]), value("b", [3])],
     [value("y", [2, 3])], [f("w", 8, 3), f("b", 3)], opset=9, ir=3)
