// state.h -- the headers of PyTorch, and what the whole shim shares.
#pragma once
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/core/Tensor.h>
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
#include <ATen/ops/full_like.h>
#include <ATen/ops/is_nonzero_native.h>
#include <ATen/ops/isin.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <ATen/SequenceNumber.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/TensorIterator.h>
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

struct Value;

// What a storage turned out to be: a parameter, a gradient ...
struct Label {
    plim_category category = PLIM_CAT_COUNT; // nobody has said
    const char *name = "";
};

struct Held {
    uint32_t block;
    Label label;
};

// Whose an allocation is.
struct Place {
    const char *line = nullptr, *module = "";
};

struct State {
    plim_vgpu *cards[PLIM_VGPU_CARDS] = {};
    int machine = 0;        // how many there are; the script may see fewer
    std::atomic<bool> open; // from plimsoll_shim_open to plimsoll_shim_close
    pid_t pid = 0;
    double scalar = -1;       // what a guess is read as; below 0: what guesses.h says
    double mask_fraction = 1; // of what a mask may select
    bool routing_worst = false;
    int rank = 0, world = 1; // of the job
    int torch = 0, cc = 80, sms = 108;
    bool peers = false;                        // cards copy to one another by kernels
    bool workspace = true;                     // what kernels take inside is counted
    std::mutex mu;                             // of what follows
    std::unordered_map<uint64_t, Held> blocks; // by address
    std::unordered_map<uint64_t, std::shared_ptr<Value>> contents; // by address
    // By thread and autograd's sequence number, which is the thread's own.
    std::unordered_map<uint64_t, std::vector<Place>> node_place;
    std::atomic<const char *> module{""}; // that runs, by its path
    uint64_t main_thread = 0;
    std::unordered_set<std::string> words;
} g;

std::atomic<int> patience{0}; // see reads.h
std::atomic<const char *> patient_line{nullptr};

bool alive() { return g.open && g.pid == getpid(); }

// The cards that the script sees, decided when it first asks, as CUDA does.  Of one card
// nothing is hidden: scripts name the cards of their author's machine.
int visible_cards()
{
    static const int n = [] {
        const char *text = getenv("CUDA_VISIBLE_DEVICES");
        if (!text || g.machine < 2)
            return g.machine;
        int seen = 0;
        for (std::set<std::string> names; *text; seen++) { // up to the first that there is not
            std::string name(text, strcspn(text, ","));
            bool uuid = name.compare(0, 4, "GPU-") == 0;
            char *end;
            long index = strtol(name.c_str(), &end, 10);
            if ((!uuid && (end == name.c_str() || *end || index < 0 || index >= g.machine)) ||
                !names.insert(name).second)
                break;
            text += name.size() + (text[name.size()] == ',');
        }
        return std::min(seen, g.machine);
    }();
    return n;
}

thread_local DeviceIndex current_device = 0;

// The card that this thread allocates on.
plim_vgpu *card() { return g.cards[current_device]; }

void check(plim_status st, const plim_err &err)
{
    TORCH_CHECK(!st, "plimsoll: ", err.msg[0] ? err.msg : plim_status_name(st));
}

} // namespace
