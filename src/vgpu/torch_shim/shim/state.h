// state.h -- the headers of PyTorch, and what the whole shim shares.
#pragma once
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/core/Tensor.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/RNN.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/native/TensorShape.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_cudnn_rnn.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zeros.h>
#include <ATen/SequenceNumber.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/function.h>
#include <torch/library.h>

#include <plimsoll_vgpu.h>

using at::IntArrayRef;
using at::IValue;
using at::ScalarType;
using at::Tensor;
using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::DispatchKey;
using c10::Stream;
using torch::jit::Stack;

namespace {

constexpr size_t kKeep = 64 << 10; // uploads up to here keep their bytes

struct State {
    plim_vgpu *device = nullptr;
    pid_t pid = 0;
    double scalar = 0;        // what a read from the device answers
    double mask_fraction = 1; // of what a mask may select
    int torch = 0, cc = 80, sms = 108;
    bool workspace = true;                         // what kernels take inside is counted
    std::mutex mu;                                 // of what follows
    std::unordered_map<uint64_t, uint32_t> blocks; // by address
    std::unordered_map<uint64_t, std::vector<uint8_t>> contents; // of small blocks
    std::vector<const char *> node_line;                         // by autograd sequence number
    std::unordered_set<std::string> words;
} g;

bool alive() { return g.device && g.pid == getpid(); }

void check(plim_status st, const plim_err &err)
{
    TORCH_CHECK(!st, "plimsoll: ", err.msg[0] ? err.msg : plim_status_name(st));
}

} // namespace
