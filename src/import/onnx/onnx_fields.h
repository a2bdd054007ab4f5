/* onnx_fields.h -- numbers of the fields that are read, by message, with their names in
 * onnx.proto.  src: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto */
#ifndef PLIM_ONNX_FIELDS_H
#define PLIM_ONNX_FIELDS_H

enum { /* ModelProto */
       MODEL_IR_VERSION = 1,
       MODEL_PRODUCER_NAME = 2,
       MODEL_PRODUCER_VERSION = 3,
       MODEL_GRAPH = 7,
       MODEL_OPSET_IMPORT = 8,
       MODEL_FUNCTIONS = 25,
};

enum { /* FunctionProto */
       FUNCTION_NAME = 1,
       FUNCTION_INPUT = 4,
       FUNCTION_OUTPUT = 5,
       FUNCTION_NODE = 7,
       FUNCTION_OPSET_IMPORT = 9,
       FUNCTION_DOMAIN = 10,
       FUNCTION_ATTRIBUTE_PROTO = 11,
       FUNCTION_VALUE_INFO = 12,
       FUNCTION_OVERLOAD = 13,
};

enum { /* GraphProto */
       GRAPH_NODE = 1,
       GRAPH_NAME = 2,
       GRAPH_INITIALIZER = 5,
       GRAPH_INPUT = 11,
       GRAPH_OUTPUT = 12,
       GRAPH_VALUE_INFO = 13,
       GRAPH_SPARSE_INITIALIZER = 15,
};

enum { /* NodeProto */
       NODE_INPUT = 1,
       NODE_OUTPUT = 2,
       NODE_NAME = 3,
       NODE_OP_TYPE = 4,
       NODE_ATTRIBUTE = 5,
       NODE_DOMAIN = 7,
       NODE_OVERLOAD = 8,
       NODE_METADATA_PROPS = 9,
};

enum { /* AttributeProto */
       ATTR_NAME = 1,
       ATTR_F = 2,
       ATTR_I = 3,
       ATTR_S = 4,
       ATTR_T = 5,
       ATTR_G = 6,
       ATTR_FLOATS = 7,
       ATTR_INTS = 8,
       ATTR_STRINGS = 9,
       ATTR_REF_ATTR_NAME = 21,
};

enum { /* TensorProto */
       TENSOR_DIMS = 1,
       TENSOR_DATA_TYPE = 2,
       TENSOR_FLOAT_DATA = 4,
       TENSOR_INT32_DATA = 5,
       TENSOR_INT64_DATA = 7,
       TENSOR_NAME = 8,
       TENSOR_RAW_DATA = 9,
       TENSOR_DOUBLE_DATA = 10,
       TENSOR_UINT64_DATA = 11,
       TENSOR_EXTERNAL_DATA = 13,
       TENSOR_DATA_LOCATION = 14,
       TENSOR_METADATA_PROPS = 16,
};

enum { /* SparseTensorProto */
       SPARSE_VALUES = 1,
       SPARSE_DIMS = 3,
};

enum { /* ValueInfoProto, TypeProto and TypeProto.Tensor, TensorShapeProto and its Dimension */
       INFO_NAME = 1,
       INFO_TYPE = 2,
       TYPE_TENSOR = 1,
       TYPE_TENSOR_ELEM_TYPE = 1,
       TYPE_TENSOR_SHAPE = 2,
       SHAPE_DIM = 1,
       DIM_VALUE = 1,
       DIM_PARAM = 2,
};

enum { /* StringStringEntryProto, OperatorSetIdProto */
       PAIR_KEY = 1,
       PAIR_VALUE = 2,
       OPSET_DOMAIN = 1,
       OPSET_VERSION = 2,
};

#endif
