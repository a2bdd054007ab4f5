// shim.cpp -- a GPU that does not exist, for a CPU build of PyTorch.
//
// In such a build nothing is registered for the dispatch key CUDA.  This file
// registers: an allocator that asks libplimsoll, a device guard, CUDA hooks, and
// for every op one fallback that asks the op's Meta kernel for the shapes of its
// results and allocates those.  So the real dispatcher, autograd engine and
// optimizers run as for a GPU, and no kernel does.
//
// Where a CUDA kernel differs from what the Meta kernel says (other outputs,
// tensors of its own, results whose size depends on values) there is a rule
// below, by the op's name.  Rules read their arguments by name, so that one text
// serves several PyTorch versions.
//
// Compiled by front.py on first use, against the headers of the PyTorch at hand.
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

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/RNN.h>
#include <ATen/native/TensorShape.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_cudnn_rnn.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/function.h>
#include <torch/library.h>

#include <plimsoll.h>

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
    plim_pretend *device = nullptr;
    pid_t pid = 0;
    double scalar = 0;        // what a read from the device answers
    double mask_fraction = 1; // of what a mask may select
    int torch = 0, cc = 80, sms = 108;
    bool workspace = true; // what kernels take inside is counted
    std::mutex mu; // of what follows
    std::unordered_map<uint64_t, uint32_t> blocks;                // by address
    std::unordered_map<uint64_t, std::vector<uint8_t>> contents; // of small blocks
    std::vector<const char *> node_line;                         // by autograd sequence number
    std::unordered_set<std::string> words;
} g;

bool alive() { return g.device && g.pid == getpid(); }

void check(plim_status st, const plim_err &err)
{
    TORCH_CHECK(!st, "plimsoll: ", err.msg[0] ? err.msg : plim_status_name(st));
}

// ---- whose line is it --------------------------------------------------------

// What is needed of CPython, found in the process: no Python headers, any
// version.
struct Python {
    int (*ensure)() = nullptr;
    void (*release)(int) = nullptr;
    void *(*frame)() = nullptr;
    void *(*back)(void *) = nullptr;
    void *(*code)(void *) = nullptr;
    int (*lineno)(void *) = nullptr;
    void *(*attr)(void *, const char *) = nullptr;
    const char *(*utf8)(void *) = nullptr;
    void (*drop)(void *) = nullptr;
    int (*running)() = nullptr;
    void (*clear)() = nullptr;
    void (*keep)(void *) = nullptr;
    bool ok = false;
    std::vector<std::string> skip; // path prefixes that are not the user's
    std::string cwd;

    template <class F> void find(F &f, const char *name)
    {
        f = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
        ok = ok && f;
    }
    void open()
    {
        ok = true;
        find(ensure, "PyGILState_Ensure");
        find(release, "PyGILState_Release");
        find(frame, "PyEval_GetFrame");
        find(back, "PyFrame_GetBack");
        find(code, "PyFrame_GetCode");
        find(lineno, "PyFrame_GetLineNumber");
        find(attr, "PyObject_GetAttrString");
        find(utf8, "PyUnicode_AsUTF8");
        find(drop, "Py_DecRef");
        find(running, "Py_IsInitialized");
        find(clear, "PyErr_Clear");
        find(keep, "Py_IncRef");
    }
} py;

const char *intern(const std::string &s)
{
    std::lock_guard<std::mutex> lock(g.mu);
    return g.words.insert(s).first->c_str();
}

// A code object's file as it is shown; empty: not the user's.  Code objects are
// kept, so that an address means one thing.
const std::string &file_of(void *code)
{
    static std::unordered_map<void *, std::string> seen; // under the GIL
    auto it = seen.find(code);
    if (it != seen.end())
        return it->second;
    std::string path;
    if (void *name = py.attr(code, "co_filename")) {
        if (const char *z = py.utf8(name))
            path = z;
        py.drop(name);
    }
    py.clear();
    bool mine = !path.empty() && path[0] != '<' &&
                path.find("/site-packages/") == std::string::npos &&
                path.find("/dist-packages/") == std::string::npos;
    for (const auto &prefix : py.skip)
        mine = mine && path.compare(0, prefix.size(), prefix) != 0;
    if (!mine)
        path.clear();
    else if (!py.cwd.empty() && path.compare(0, py.cwd.size(), py.cwd) == 0)
        path.erase(0, py.cwd.size());
    py.keep(code);
    return seen[code] = path;
}

// "train.py:12", the innermost frame that is the user's; nullptr: none.
const char *python_line()
{
    if (!py.ok || !py.running())
        return nullptr;
    int state = py.ensure();
    const char *found = nullptr;
    void *frame = py.frame(), *owned = nullptr;
    for (int depth = 0; frame && !found && depth < 200; depth++) {
        void *code = py.code(frame);
        const std::string &file = file_of(code);
        if (!file.empty())
            found = intern(file + ":" + std::to_string(py.lineno(frame)));
        py.drop(code);
        void *next = py.back(frame);
        if (owned)
            py.drop(owned);
        frame = owned = next;
    }
    if (owned)
        py.drop(owned);
    py.release(state);
    return found;
}

// In a backward pass the line of the forward op that the node belongs to.
const char *user_line()
{
    auto node = torch::autograd::get_current_node();
    if (!node)
        return python_line();
    uint64_t seq = node->sequence_nr();
    std::lock_guard<std::mutex> lock(g.mu);
    const char *line = seq < g.node_line.size() ? g.node_line[seq] : nullptr;
    return line ? line : "(backward)";
}

// An op is about to run on this thread: if autograd has just made its node, that
// node has the newest number.
void note_node(const char *line)
{
    uint64_t next = at::sequence_number::peek();
    if (!next || !line || next > (1u << 26))
        return;
    std::lock_guard<std::mutex> lock(g.mu);
    if (g.node_line.size() < next)
        g.node_line.resize(next + next / 2, nullptr);
    g.node_line[next - 1] = line;
}

// ---- the op that runs ----------------------------------------------------------

struct Running {
    const char *op = nullptr, *line = nullptr;
    bool has_line = false;
    plim_category category = PLIM_CAT_COUNT; // the lib's guess by phase
};
thread_local Running now;
thread_local int pending_rank = -1, pending_dtype = -1;
thread_local int64_t pending_dim[8];

const char *line_now()
{
    if (!now.has_line) {
        now.line = user_line();
        now.has_line = now.op != nullptr; // outside an op each call is its own
    }
    return now.line;
}

struct InOp { // names what is allocated until it goes
    Running before = now;
    explicit InOp(const char *op)
    {
        now.op = op;
        now.has_line = false;
        now.category = PLIM_CAT_COUNT;
        if (!torch::autograd::get_current_node())
            note_node(line_now());
    }
    ~InOp() { now = before; }
};

// ---- dtypes ----------------------------------------------------------------------

int dtype_of(ScalarType t)
{
    switch (t) {
    case ScalarType::Float: return PLIM_F32;
    case ScalarType::Half: return PLIM_F16;
    case ScalarType::BFloat16: return PLIM_BF16;
    case ScalarType::Double: return PLIM_F64;
    case ScalarType::Long: return PLIM_I64;
    case ScalarType::Int: return PLIM_I32;
    case ScalarType::Short: return PLIM_I16;
    case ScalarType::Char: return PLIM_I8;
    case ScalarType::Byte: return PLIM_U8;
    case ScalarType::Bool: return PLIM_BOOL;
    case ScalarType::ComplexFloat: return PLIM_C64;
    case ScalarType::ComplexDouble: return PLIM_C128;
    case ScalarType::ComplexHalf: return PLIM_C32;
    case ScalarType::Float8_e4m3fn: return PLIM_F8E4M3FN;
    case ScalarType::Float8_e5m2: return PLIM_F8E5M2;
    default: return -1;
    }
}

void pending(IntArrayRef size, ScalarType t)
{
    pending_rank = size.size() <= 8 ? (int)size.size() : -1;
    pending_dtype = pending_rank < 0 ? -1 : dtype_of(t);
    for (int i = 0; i < pending_rank; i++)
        pending_dim[i] = size[i];
}

plim_pretend_tag tag_now()
{
    plim_pretend_tag t = {};
    t.line = line_now();
    t.op = now.op;
    t.dtype = pending_dtype;
    t.rank = pending_rank;
    t.dim = pending_dim;
    t.category = now.category;
    t.certainty = PLIM_EXACT;
    pending_dtype = pending_rank = -1;
    return t;
}

[[noreturn]] void out_of_memory()
{
    TORCH_CHECK_WITH(OutOfMemoryError, false, plim_pretend_oom_text(g.device));
    abort(); // not reached
}

// ---- streams -----------------------------------------------------------------------

thread_local int64_t current_stream = 0;
std::atomic<int64_t> next_stream{0};

Stream stream_of(int64_t id) { return Stream(Stream::UNSAFE, Device(c10::kCUDA, 0), id); }

// ---- allocator -----------------------------------------------------------------------

void release(void *context)
{
    if (!context || !alive())
        return;
    uint64_t addr = (uint64_t)(uintptr_t)context;
    uint32_t block;
    {
        std::lock_guard<std::mutex> lock(g.mu);
        auto it = g.blocks.find(addr);
        if (it == g.blocks.end())
            return;
        block = it->second;
        g.blocks.erase(it);
        g.contents.erase(addr);
    }
    plim_pretend_free(g.device, block, nullptr);
}

struct Allocator final : c10::Allocator {
    c10::DataPtr allocate(size_t n) override
    {
        Device where(c10::kCUDA, 0);
        TORCH_CHECK(alive(), "Cannot re-initialize CUDA in forked subprocess. To use CUDA with "
                             "multiprocessing, you must use the 'spawn' start method");
        if (!n)
            return {nullptr, nullptr, &release, where};
        plim_err err = PLIM_ERR_INIT;
        plim_pretend_tag tag = tag_now();
        uint32_t block;
        uint64_t addr;
        check(plim_pretend_malloc(g.device, n, (uint16_t)current_stream, &tag, &block, &addr,
                                  &err),
              err);
        if (block == PLIM_PRETEND_NONE)
            out_of_memory();
        {
            std::lock_guard<std::mutex> lock(g.mu);
            g.blocks[addr] = block;
        }
        void *p = reinterpret_cast<void *>((uintptr_t)addr);
        return {p, p, &release, where};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void *, const void *, std::size_t) const override {}
};

Allocator allocator;

// ---- guard and hooks -----------------------------------------------------------------

struct Guard final : c10::impl::DeviceGuardImplInterface {
    static Device one() { return Device(c10::kCUDA, 0); }
    static void only(Device d)
    {
        TORCH_CHECK(d.index() <= 0, "CUDA error: invalid device ordinal: this pretend machine "
                                    "has one GPU, cuda:", (int)d.index(), " is asked for");
    }
    DeviceType type() const override { return DeviceType::CUDA; }
    Device exchangeDevice(Device d) const override { only(d); return one(); }
    Device getDevice() const override { return one(); }
    void setDevice(Device d) const override { only(d); }
    void uncheckedSetDevice(Device) const noexcept override {}
    // noexcept: in older versions these two are
    Stream getStream(Device) const noexcept override { return stream_of(current_stream); }
    Stream getDefaultStream(Device) const override { return stream_of(0); }
    Stream getNewStream(Device, int = 0) const override
    {
        return stream_of(1 + next_stream++ % 32); // src: CUDAStream.cpp, 32 in a pool
    }
    Stream getStreamFromGlobalPool(Device d, bool = false) const override
    {
        return getNewStream(d, 0);
    }
    Stream exchangeStream(Stream s) const noexcept override
    {
        Stream old = stream_of(current_stream);
        current_stream = s.id();
        return old;
    }
    DeviceIndex deviceCount() const noexcept override { return 1; }
    void record(void **e, const Stream &, const DeviceIndex, const c10::EventFlag) const override
    {
        *e = const_cast<Guard *>(this); // any event is over at once
    }
    void block(void *, const Stream &) const override {}
    bool queryEvent(void *) const override { return true; }
    void destroyEvent(void *, const DeviceIndex) const noexcept override {}
    void synchronizeEvent(void *) const override {}
    double elapsedTime(void *, void *, const DeviceIndex) const override { return 0; }
    bool queryStream(const Stream &) const override { return true; }
    void synchronizeStream(const Stream &s) const override
    {
        if (alive())
            plim_pretend_sync(g.device, (uint16_t)s.id(), nullptr);
    }
    void synchronizeDevice(const DeviceIndex) const override
    {
        if (alive())
            plim_pretend_sync(g.device, UINT16_MAX, nullptr);
    }
    void recordDataPtrOnStream(const c10::DataPtr &p, const Stream &s) const override
    {
        uint32_t block;
        {
            std::lock_guard<std::mutex> lock(g.mu);
            auto it = g.blocks.find((uint64_t)(uintptr_t)p.get_context());
            if (it == g.blocks.end())
                return;
            block = it->second;
        }
        plim_pretend_record_stream(g.device, block, (uint16_t)s.id(), nullptr);
    }
};
Guard guard;

// Not `override`: the list of these functions differs between versions.
struct Hooks : at::CUDAHooksInterface {
    explicit Hooks(at::CUDAHooksArgs) {}
    void init() const {}
    bool hasCUDA() const { return true; }
    bool hasCUDART() const { return true; }
    bool hasMAGMA() const { return false; }
    bool hasCuDNN() const { return true; }
    bool hasCuSOLVER() const { return true; }
    bool hasCuBLASLt() const { return true; }
    bool hasROCM() const { return false; }
    bool isBuilt() const { return true; }
    bool isAvailable() const { return alive(); }
    bool hasPrimaryContext(DeviceIndex) const { return true; }
    DeviceIndex current_device() const { return 0; }
    DeviceIndex getCurrentDevice() const { return 0; }
    DeviceIndex deviceCount() const { return 1; }
    void setCurrentDevice(DeviceIndex d) const { Guard::only(Device(c10::kCUDA, d)); }
    DeviceIndex exchangeDevice(DeviceIndex) const { return 0; }
    DeviceIndex maybeExchangeDevice(DeviceIndex) const { return 0; }
    int getNumGPUs() const { return 1; }
    const at::Generator &getDefaultGenerator(DeviceIndex = -1) const
    {
        static at::Generator one = at::detail::createCPUGenerator();
        return one;
    }
    at::Generator getNewGenerator(DeviceIndex = -1) const
    {
        return at::detail::createCPUGenerator();
    }
    at::Allocator *getPinnedMemoryAllocator() const { return c10::GetCPUAllocator(); }
    at::Allocator *getCUDADeviceAllocator() const { return &allocator; }
    bool isPinnedPtr(const void *) const { return false; }
    Device getDeviceFromPtr(void *) const { return Device(c10::kCUDA, 0); }
    bool compiledWithCuDNN() const { return true; }
    bool compiledWithMIOpen() const { return false; }
    bool supportsDilatedConvolutionWithCuDNN() const { return true; }
    bool supportsDepthwiseConvolutionWithCuDNN() const { return true; }
    bool supportsBFloat16ConvolutionWithCuDNNv8() const { return g.cc >= 80; }
    bool supportsBFloat16RNNWithCuDNN() const { return g.cc >= 80; }
    long versionCuDNN() const { return 91000; }
    long versionRuntimeCuDNN() const { return 91000; }
    long versionCUDART() const { return 12080; }
    double batchnormMinEpsilonCuDNN() const { return 0; }
    std::string showConfig() const { return "plimsoll: a pretend GPU"; }
    void deviceSynchronize(DeviceIndex) const { guard.synchronizeDevice(0); }
};

// ---- tensors ------------------------------------------------------------------------------

const c10::DispatchKeySet kKeys(DispatchKey::CUDA);
using IntList = std::vector<int64_t>;

bool on(const Tensor &t) { return t.defined() && t.is_cuda(); }

Tensor strided(IntArrayRef size, IntArrayRef stride, ScalarType t)
{
    pending(size, t);
    return at::detail::empty_strided_generic(size, stride, &allocator, kKeys, t);
}
Tensor contig(IntArrayRef size, ScalarType t)
{
    pending(size, t);
    return at::detail::empty_generic(size, &allocator, kKeys, t, std::nullopt);
}
Tensor format(IntArrayRef size, ScalarType t, at::MemoryFormat f)
{
    pending(size, t);
    return at::detail::empty_generic(size, &allocator, kKeys, t, f);
}
// What a kernel takes for itself: not counted with --workspace off.
Tensor inside(IntArrayRef size, ScalarType t)
{
    if (!g.workspace)
        return Tensor();
    Running before = now;
    now.category = PLIM_CAT_WORKSPACE;
    Tensor x = contig(size, t);
    now = before;
    return x;
}
Tensor inside(int64_t n) { return inside({n}, ScalarType::Byte); }
Tensor ids(int64_t n) { return inside({n}, ScalarType::Long); }
Tensor like(const Tensor &t, ScalarType s) // empty_like, preserving a dense layout
{
    if (t.is_non_overlapping_and_dense())
        return strided(t.sizes(), t.strides(), s);
    IntList stride = at::infer_dense_strides(t.sizes(), t.strides());
    return strided(t.sizes(), stride, s);
}
Tensor like(const Tensor &t) { return like(t, t.scalar_type()); }
Tensor contiguous(const Tensor &t) // the kernel's own copy, if one is needed
{
    return t.is_contiguous() ? t : contig(t.sizes(), t.scalar_type());
}
Tensor formatted(const Tensor &t, at::MemoryFormat f)
{
    return t.is_contiguous(f) ? t : format(t.sizes(), t.scalar_type(), f);
}
ScalarType wide(ScalarType t)
{
    return t == ScalarType::Half || t == ScalarType::BFloat16 ? ScalarType::Float : t;
}
IntList dense_strides(IntArrayRef size)
{
    IntList out(size.size());
    int64_t n = 1;
    for (size_t i = size.size(); i--; n *= std::max<int64_t>(size[i], 1))
        out[i] = n;
    return out;
}
int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

size_t span(IntArrayRef size, IntArrayRef stride, const Tensor &t, int64_t offset)
{
    return at::detail::computeStorageNbytes(size, stride, t.dtype().itemsize(),
                                            (size_t)offset);
}

// out= and resize_: the tensor gets this geometry, its storage grows if it must.
void become(const Tensor &t, IntArrayRef size, IntArrayRef stride)
{
    auto *impl = t.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(size, stride);
    size_t need = t.numel() ? span(size, stride, t, t.storage_offset()) : 0;
    auto *store = t.storage().unsafeGetStorageImpl();
    if (need <= store->nbytes())
        return;
    pending(size, t.scalar_type());
    c10::DataPtr fresh = allocator.allocate(need);
    store->set_data_ptr_noswap(std::move(fresh));
    store->set_nbytes(need);
}

// ---- contents of small storages ---------------------------------------------------------------

uint64_t address(const Tensor &t)
{
    return t.has_storage() ? (uint64_t)(uintptr_t)t.storage().data_ptr().get() : 0;
}
void forget(const Tensor &t)
{
    if (!on(t))
        return;
    std::lock_guard<std::mutex> lock(g.mu);
    g.contents.erase(address(t));
}
bool covers(const Tensor &t) // all of its storage, in order
{
    return on(t) && t.numel() && t.is_contiguous() && !t.storage_offset() &&
           t.nbytes() == t.storage().nbytes() && t.nbytes() <= kKeep;
}
void remember(const Tensor &t, const void *data)
{
    std::lock_guard<std::mutex> lock(g.mu);
    const uint8_t *p = static_cast<const uint8_t *>(data);
    g.contents[address(t)] = std::vector<uint8_t>(p, p + t.nbytes());
}
// The tensor on the CPU, if its storage is known.
Tensor recall(const Tensor &t)
{
    std::lock_guard<std::mutex> lock(g.mu);
    auto it = g.contents.find(address(t));
    if (it == g.contents.end() || !t.numel() ||
        span(t.sizes(), t.strides(), t, t.storage_offset()) > it->second.size())
        return Tensor();
    uint8_t *p = it->second.data() + t.storage_offset() * (int64_t)t.itemsize();
    return at::from_blob(p, t.sizes(), t.strides(), at::TensorOptions(t.scalar_type())).clone();
}

std::string policy_text()
{
    return std::isnan(g.scalar) ? "nan" : g.scalar == 1 ? "1" : "0";
}
void caveat(const std::string &what)
{
    const char *line = line_now();
    plim_pretend_note(g.device, line ? line : "", what.c_str(), nullptr);
}
at::Scalar policy_scalar(ScalarType t)
{
    if (t == ScalarType::Bool)
        return at::Scalar(g.scalar == 1);
    if (at::isFloatingType(t) || at::isComplexType(t))
        return at::Scalar(g.scalar);
    return at::Scalar((int64_t)(g.scalar == 1));
}

// ---- arguments by name ------------------------------------------------------------------------

struct Call {
    const c10::FunctionSchema &schema;
    std::vector<IValue> in;

    Call(const c10::OperatorHandle &op, Stack *stack) : schema(op.schema())
    {
        size_t n = schema.arguments().size();
        in.assign(std::make_move_iterator(stack->end() - n),
                  std::make_move_iterator(stack->end()));
        torch::jit::drop(*stack, n);
    }
    const IValue &at(const char *name) const
    {
        static const IValue none;
        for (size_t i = 0; i < in.size(); i++)
            if (schema.arguments()[i].name() == name)
                return in[i];
        return none;
    }
    Tensor tensor(const char *name) const
    {
        const IValue &v = at(name);
        return v.isTensor() ? v.toTensor() : Tensor();
    }
    IntList ints(const char *name) const
    {
        const IValue &v = at(name);
        IntList out;
        if (v.isIntList())
            return v.toIntVector();
        if (v.isList())
            for (const IValue &e : v.toListRef())
                out.push_back(e.isSymInt() ? e.toSymInt().expect_int() : e.toInt());
        else if (v.isInt())
            out.push_back(v.toInt());
        return out;
    }
    int64_t integer(const char *name, int64_t usual = 0) const
    {
        const IValue &v = at(name);
        return v.isSymInt() ? v.toSymInt().expect_int() : v.isInt() ? v.toInt() : usual;
    }
    double real(const char *name, double usual = 0) const
    {
        const IValue &v = at(name);
        return v.isDouble() ? v.toDouble() : v.isInt() ? (double)v.toInt() : usual;
    }
    bool flag(const char *name, bool usual = false) const
    {
        const IValue &v = at(name);
        return v.isBool() ? v.toBool() : usual;
    }
    std::vector<bool> mask(const char *name) const
    {
        std::vector<bool> out;
        const IValue &v = at(name);
        if (v.isBoolList())
            for (bool b : v.toBoolList())
                out.push_back(b);
        out.resize(4, false);
        return out;
    }
};

// ---- the fallback: any op, by its Meta kernel -----------------------------------------------------

Tensor as_meta(const Tensor &t)
{
    if (!on(t))
        return t;
    Tensor m = at::detail::empty_strided_meta(t.sizes(), t.strides(), t.scalar_type());
    if (t.unsafeGetTensorImpl()->is_wrapped_number())
        m.unsafeGetTensorImpl()->set_wrapped_number(true);
    return m;
}
Tensor as_cpu(const Tensor &t)
{
    if (!on(t))
        return t;
    Tensor c = at::empty_strided(t.sizes(), t.strides(),
                                 at::TensorOptions(t.scalar_type()).device(c10::kCPU));
    return c.zero_();
}

template <class F> IValue convert(const IValue &v, F f, Device device)
{
    if (v.isTensor())
        return f(v.toTensor());
    if (v.isTensorList()) {
        std::vector<Tensor> out;
        for (const Tensor &t : v.toTensorVector())
            out.push_back(f(t));
        return out;
    }
    if (v.isList()) {
        auto list = v.toList();
        bool any = false;
        for (size_t i = 0; i < list.size(); i++)
            any |= static_cast<IValue>(list.get(i)).isTensor();
        if (!any)
            return v;
        c10::List<std::optional<Tensor>> out;
        for (size_t i = 0; i < list.size(); i++) {
            IValue e = list.get(i);
            out.push_back(e.isTensor() ? std::optional<Tensor>(f(e.toTensor())) : std::nullopt);
        }
        return out;
    }
    if (v.isDevice() && v.toDevice().is_cuda())
        return device;
    if (v.isGenerator() && v.toGenerator().defined())
        return IValue();
    return v;
}

bool writes(const c10::AliasInfo *a) { return a && a->isWrite(); }

// Ops that take tensors of both devices.
bool mixes_devices(const std::string &name)
{
    static const std::unordered_set<std::string> names = {
        "aten::index.Tensor", "aten::index_put_", "aten::_index_put_impl_", "aten::index_put",
        "aten::_unsafe_index.Tensor", "aten::_unsafe_index_put", "aten::where.self",
        "aten::copy_", "aten::_copy_from", "aten::set_.source_Tensor",
        "aten::_use_cudnn_ctc_loss.Tensor", "aten::_ctc_loss.Tensor", "aten::_cudnn_ctc_loss.Tensor"};
    return names.count(name) > 0;
}

void check_devices(const Call &c, const std::string &name)
{
    bool cuda = false, cpu = false;
    auto see = [&](const Tensor &t) {
        if (!t.defined())
            return;
        cuda |= t.is_cuda();
        cpu |= t.device().is_cpu() && t.dim() > 0;
    };
    for (const IValue &v : c.in) {
        if (v.isTensor())
            see(v.toTensor());
        else if (v.isTensorList())
            for (const Tensor &t : v.toTensorVector())
                see(t);
    }
    TORCH_CHECK(!cuda || !cpu || mixes_devices(name),
                "Expected all tensors to be on the same device, but found at least two devices, "
                "cuda:0 and cpu! (when checking arguments of ", name, ")");
}

uint64_t total_bytes(const Call &c)
{
    uint64_t n = 0;
    for (const IValue &v : c.in)
        if (v.isTensor() && on(v.toTensor()))
            n += v.toTensor().nbytes();
    return n;
}

bool only_writes(const Call &c) // every result is an argument
{
    bool any = false;
    for (const auto &a : c.schema.arguments())
        any |= writes(a.alias_info());
    for (const auto &r : c.schema.returns())
        any &= writes(r.alias_info());
    return any;
}

// What the op makes of these shapes; `args` are the converted arguments after it.
void run_shapes(const c10::OperatorHandle &op, const Call &c, Stack &out,
                std::vector<IValue> &args)
{
    at::AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    std::string name = c10::toString(op.operator_name());
    auto run = [&](bool meta) {
        out.clear();
        args.clear();
        for (const IValue &v : c.in) {
            args.push_back(meta ? convert(v, as_meta, Device(c10::kMeta))
                                : convert(v, as_cpu, Device(c10::kCPU)));
            out.push_back(args.back());
        }
        op.callBoxed(&out);
    };
    std::string why;
    try {
        run(true);
        return;
    } catch (const c10::NotImplementedError &e) {
        why = e.what_without_backtrace();
    } catch (const c10::Error &) {
        throw; // shapes that do not fit: the user's mistake, as on a GPU
    } catch (const std::exception &e) {
        why = e.what();
    }
    if (only_writes(c)) {
        out.clear();
        args = c.in;
        for (size_t i = 0; i < c.schema.returns().size(); i++)
            out.push_back(IValue()); // replaced by the argument itself
        return;
    }
    uint64_t n = total_bytes(c);
    TORCH_CHECK_NOT_IMPLEMENTED(n <= (256u << 20), "plimsoll: '", name,
                                "' has no shape rule yet (", why, ")");
    caveat(name + " has no shape rule: its shapes were computed on the CPU from zeros");
    run(false);
}

Tensor view_of(const Tensor &base, const Tensor &m)
{
    if (base.scalar_type() != m.scalar_type()) { // view_as_real and the like
        c10::Storage storage = base.storage();
        Tensor t = at::detail::make_tensor<c10::TensorImpl>(
            c10::TensorImpl::VIEW, std::move(storage), base.key_set(), m.dtype());
        int64_t first = base.storage_offset() * (int64_t)base.itemsize() / (int64_t)m.itemsize();
        t.unsafeGetTensorImpl()->set_storage_offset(first + m.storage_offset());
        t.unsafeGetTensorImpl()->set_sizes_and_strides(m.sizes(), m.strides());
        return t;
    }
    return at::native::as_strided_tensorimpl(base, m.sizes(), m.strides(),
                                             base.storage_offset() + m.storage_offset());
}

// The argument that a result is, or is a view of; -1: neither.
int aliased(const Call &c, const c10::AliasInfo *r)
{
    for (size_t i = 0; r && i < c.in.size(); i++) {
        auto *a = c.schema.arguments()[i].alias_info();
        if (a && a->isWrite() == r->isWrite() && a->beforeSets() == r->beforeSets())
            return (int)i;
    }
    return -1;
}

void give(const Call &c, const Stack &out, Stack *stack)
{
    const auto &returns = c.schema.returns();
    for (size_t r = 0; r < returns.size(); r++) {
        const IValue &v = out[out.size() - returns.size() + r];
        auto *info = returns[r].alias_info();
        int i = aliased(c, info);
        bool view = info && !info->isWrite() && i >= 0 && c.in[i].isTensor();
        auto fresh = [&](const Tensor &t) {
            if (!t.defined())
                return t;
            return view ? view_of(c.in[i].toTensor(), t)
                        : strided(t.sizes(), t.strides(), t.scalar_type());
        };
        if (info && info->isWrite() && i >= 0)
            stack->push_back(c.in[i]);
        else if (v.isTensor())
            stack->push_back(fresh(v.toTensor()));
        else if (v.isTensorList()) {
            std::vector<Tensor> list;
            for (const Tensor &t : v.toTensorVector())
                list.push_back(fresh(t));
            stack->push_back(list);
        } else
            stack->push_back(v);
    }
}

// Ops whose writes leave what is known of their arguments as it is: GradScaler's
// found_inf stays 0, its scale what it was.
bool keeps_contents(const std::string &name)
{
    return name.compare(0, 10, "aten::_amp") == 0;
}

void after_writes(const Call &c, const std::vector<IValue> &args, bool keep)
{
    for (size_t i = 0; i < c.in.size(); i++) {
        if (!writes(c.schema.arguments()[i].alias_info()))
            continue;
        if (c.in[i].isTensor() && on(c.in[i].toTensor())) {
            const Tensor t = c.in[i].toTensor();
            if (!keep)
                forget(t);
            if (args[i].isTensor() && args[i].toTensor().defined() &&
                !args[i].toTensor().is_cuda() && args[i].toTensor().sizes() != t.sizes())
                become(t, args[i].toTensor().sizes(), args[i].toTensor().strides());
        } else if (c.in[i].isTensorList() && !keep) {
            for (const Tensor &t : c.in[i].toTensorVector())
                forget(t);
        }
    }
}

// ---- what kernels take inside -----------------------------------------------------------------------

void gemm(bool lt)
{
    plim_err err = PLIM_ERR_INIT;
    plim_pretend_tag tag = tag_now();
    bool oom = false;
    tag.category = PLIM_CAT_WORKSPACE;
    check(plim_pretend_gemm(g.device, torch::autograd::get_current_node() != nullptr, lt, &tag,
                            &oom, &err),
          err);
    if (oom)
        out_of_memory();
}

// src: Blas.cpp prepare_matrix_for_cublas: other strides are cloned for the call
bool gemm_ready(const Tensor &t)
{
    int64_t r = t.dim() - 2, k = t.dim() - 1;
    if (r < 0)
        return true;
    int64_t rows = std::max<int64_t>(t.size(r), 1), cols = std::max<int64_t>(t.size(k), 1);
    return (t.stride(r) == 1 && t.stride(k) >= rows) || (t.stride(k) == 1 && t.stride(r) >= cols);
}

void matrix_product(const Call &c, const std::string &name)
{
    std::vector<Tensor> copies;
    for (const char *arg : {"mat1", "mat2", "batch1", "batch2", "self"}) {
        Tensor t = c.tensor(arg);
        bool operand = strcmp(arg, "self") != 0 || name == "aten::mm" || name == "aten::bmm";
        if (operand && on(t) && !gemm_ready(t))
            copies.push_back(contig(t.sizes(), t.scalar_type()));
    }
    Tensor bias = c.tensor("self"), w = c.tensor("mat2");
    bool lt = name.compare(0, 11, "aten::addmm") == 0 && bias.dim() == 1 &&
              bias.is_contiguous() && w.dim() == 2 && w.size(0) > 1 && w.size(1) > 1;
    gemm(lt);
}

void reduce(const Tensor &x, uint32_t mask)
{
    if (!on(x) || x.dim() > 8 || dtype_of(x.scalar_type()) < 0)
        return;
    plim_err err = PLIM_ERR_INIT;
    plim_pretend_tag tag = tag_now();
    bool oom = false;
    tag.category = PLIM_CAT_WORKSPACE;
    check(plim_pretend_reduce(g.device, (plim_dtype)dtype_of(x.scalar_type()), (int)x.dim(),
                              x.sizes().data(), x.strides().data(), mask, &tag, &oom, &err),
          err);
    if (oom)
        out_of_memory();
}
uint32_t all_dims(const Tensor &x) { return (1u << x.dim()) - 1; }

void reduction(const Call &c)
{
    Tensor x = c.tensor("self");
    uint32_t mask = 0;
    for (int64_t d : c.ints("dim"))
        mask |= 1u << (d < 0 ? d + x.dim() : d);
    if (on(x))
        reduce(x, mask ? mask : all_dims(x));
}

using Inside = void (*)(const Call &c, const std::string &name);
const std::unordered_map<std::string, Inside> &insides()
{
    static const Inside reduce = [](const Call &c, const std::string &) { reduction(c); };
    static const Inside softmax = [](const Call &c, const std::string &) {
        Tensor a = c.tensor("self"), b = c.tensor("grad_output"), y = c.tensor("output");
        Tensor copies[] = {on(a) ? contiguous(a) : a, on(b) ? contiguous(b) : b,
                           on(y) ? contiguous(y) : y};
    };
    static const Inside vector = [](const Call &, const std::string &) { gemm(false); };
    static const std::unordered_map<std::string, Inside> all = {
        {"aten::mm", matrix_product},       {"aten::addmm", matrix_product},
        {"aten::bmm", matrix_product},      {"aten::baddbmm", matrix_product},
        {"aten::addmm_", matrix_product},   {"aten::baddbmm_", matrix_product},
        {"aten::_addmm_activation", matrix_product},
        {"aten::mv", vector},               {"aten::addmv", vector},
        {"aten::dot", vector},              {"aten::sum.dim_IntList", reduce},
        {"aten::sum", reduce},              {"aten::mean.dim", reduce},
        {"aten::mean", reduce},             {"aten::amax", reduce},
        {"aten::amin", reduce},             {"aten::prod", reduce},
        {"aten::linalg_vector_norm", reduce}, {"aten::var.correction", reduce},
        {"aten::std.correction", reduce},   {"aten::any", reduce},
        {"aten::all", reduce},              {"aten::_softmax", softmax},
        {"aten::_log_softmax", softmax},    {"aten::_softmax_backward_data", softmax},
        {"aten::_log_softmax_backward_data", softmax},
    };
    return all;
}

const char *short_name(const c10::OperatorHandle &op)
{
    const std::string &name = op.operator_name().name;
    size_t at = name.rfind(':');
    return name.c_str() + (at == std::string::npos ? 0 : at + 1);
}

void fallback(const c10::OperatorHandle &op, Stack *stack)
{
    TORCH_CHECK(alive(), "Cannot re-initialize CUDA in forked subprocess. To use CUDA with "
                         "multiprocessing, you must use the 'spawn' start method");
    InOp in(short_name(op));
    Call c(op, stack);
    Stack out;
    std::vector<IValue> args;
    std::string name = c10::toString(op.operator_name());
    check_devices(c, name);
    run_shapes(op, c, out, args);
    after_writes(c, args, keeps_contents(name));
    give(c, out, stack);
    auto inside = insides().find(name);
    if (inside != insides().end())
        inside->second(c, name);
}

// ---- rules: making, viewing, copying ------------------------------------------------------------------

using Type = std::optional<ScalarType>;
using Where = std::optional<Device>;

Tensor empty_format(IntArrayRef size, Type t, std::optional<at::Layout>, Where d,
                    std::optional<bool>, std::optional<at::MemoryFormat> f)
{
    if (d)
        Guard::only(*d);
    pending(size, t.value_or(ScalarType::Float));
    return at::detail::empty_generic(size, &allocator, kKeys, t.value_or(ScalarType::Float), f);
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, Type t, std::optional<at::Layout>,
                     Where d, std::optional<bool>)
{
    if (d)
        Guard::only(*d);
    return strided(size, stride, t.value_or(ScalarType::Float));
}

Tensor as_strided(const Tensor &t, IntArrayRef size, IntArrayRef stride,
                  std::optional<int64_t> offset)
{
    return at::native::as_strided_tensorimpl(t, size, stride, offset);
}

const Tensor &resize_(const Tensor &t, IntArrayRef size, std::optional<at::MemoryFormat> f)
{
    InOp in("resize_");
    Tensor m = at::empty(size, at::TensorOptions(t.scalar_type()).device(c10::kMeta), f);
    forget(t);
    become(t, m.sizes(), m.strides());
    return t;
}

void set_storage(const c10::OperatorHandle &op, Stack *stack)
{
    Call c(op, stack);
    Tensor t = c.tensor("self");
    c10::Storage source = c.at("source").toStorage();
    IntList size = c.ints("size"), stride = c.ints("stride");
    if (size.empty() && c.at("size").isNone()) // set_.source_Storage: all of it
        size = {(int64_t)(source.nbytes() / t.itemsize())};
    if (stride.empty() && !size.empty())
        stride = dense_strides(size);
    t.unsafeGetTensorImpl()->set_storage_keep_dtype(source);
    t.unsafeGetTensorImpl()->set_storage_offset(c.integer("storage_offset"));
    become(t, size, stride);
    stack->push_back(t);
}

void no(const c10::OperatorHandle &op, Stack *stack)
{
    torch::jit::drop(*stack, op.schema().arguments().size());
    stack->push_back(false);
}

void set_empty(const c10::OperatorHandle &op, Stack *stack)
{
    Call c(op, stack);
    Tensor t = c.tensor("self");
    c10::Storage none(c10::Storage::use_byte_size_t(), 0, allocator.allocate(0), &allocator, true);
    t.unsafeGetTensorImpl()->set_storage_keep_dtype(none);
    t.unsafeGetTensorImpl()->set_storage_offset(0);
    t.unsafeGetTensorImpl()->set_sizes_and_strides(IntList{0}, IntList{1});
    stack->push_back(t);
}

bool same_layout(const Tensor &a, const Tensor &b)
{
    return (a.is_contiguous() && b.is_contiguous()) ||
           (a.strides() == b.strides() && a.sizes() == b.sizes() &&
            a.is_non_overlapping_and_dense());
}

// src: cuda/Copy.cu copy_requires_temporaries and copy_kernel_cuda
Tensor copy_temporary(const Tensor &dst, const Tensor &src)
{
    if (dst.device() == src.device() ||
        (dst.scalar_type() == src.scalar_type() && same_layout(dst, src)))
        return Tensor();
    if (dst.is_cuda())
        return dst.is_contiguous() ? Tensor() : like(dst);
    return src.is_contiguous() ? Tensor() : contig(src.sizes(), src.scalar_type());
}

void download(Tensor &dst, const Tensor &src)
{
    Tensor known = recall(src);
    if (known.defined()) {
        at::AutoDispatchBelowADInplaceOrView below;
        dst.copy_(known);
        return;
    }
    caveat("a tensor copied from the card is " + policy_text());
    at::AutoDispatchBelowADInplaceOrView below;
    dst.fill_(policy_scalar(dst.scalar_type()));
}

Tensor &copy_(Tensor &dst, const Tensor &src, bool)
{
    if (!dst.numel() || dst.is_same(src))
        return dst;
    InOp in("copy_");
    at::infer_size(dst.sizes(), src.sizes());
    Tensor temporary = copy_temporary(dst, src);
    if (!on(dst)) {
        download(dst, src);
        return dst;
    }
    forget(dst);
    if (covers(dst) && dst.sizes() == src.sizes() && dst.scalar_type() == src.scalar_type()) {
        Tensor known = on(src) ? recall(src) : src;
        if (known.defined() && known.device().is_cpu())
            remember(dst, known.contiguous().const_data_ptr());
    }
    return dst;
}

at::Scalar local_scalar(const Tensor &t)
{
    InOp in("item");
    Tensor known = recall(t);
    if (known.defined())
        return known.item();
    caveat("a value read from the card is " + policy_text());
    return policy_scalar(t.scalar_type());
}

void equal(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("equal");
    Call c(op, stack);
    Tensor a = c.tensor("self"), b = c.tensor("other");
    bool same = a.sizes() == b.sizes();
    Tensor ka = on(a) ? recall(a) : a, kb = on(b) ? recall(b) : b;
    if (same && ka.defined() && kb.defined())
        same = ka.equal(kb);
    else if (same && !a.is_same(b)) {
        caveat("a comparison on the card is " + policy_text());
        same = g.scalar == 1;
    }
    stack->push_back(same);
}

void fill_(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("fill_");
    Call c(op, stack);
    Tensor t = c.tensor("self");
    const IValue &v = c.at("value");
    forget(t);
    if (covers(t) && (v.isScalar() || v.isNone())) {
        Tensor known = at::zeros(t.sizes(), at::TensorOptions(t.scalar_type()));
        if (v.isScalar())
            known.fill_(v.toScalar());
        remember(t, known.const_data_ptr());
    }
    stack->push_back(t);
}

void record_stream(const c10::OperatorHandle &op, Stack *stack)
{
    Call c(op, stack);
    guard.recordDataPtrOnStream(c.tensor("self").storage().data_ptr(), c.at("s").toStream());
}

// ---- rules: sizes that depend on values -----------------------------------------------------------------

int64_t selected(int64_t n) { return (int64_t)std::ceil(g.mask_fraction * (double)n); }

void note_selection(const char *what)
{
    char text[96];
    snprintf(text, sizeof text, "%s selects %g of what it could", what, g.mask_fraction);
    caveat(text);
}

// src: Nonzero.cu: a count, cub's temporaries, the flat indices' 2-d result
Tensor nonzero_of(const Tensor &t)
{
    Tensor known = recall(t);
    int64_t n = selected(t.numel());
    if (known.defined()) {
        n = known.count_nonzero().item<int64_t>();
    } else {
        note_selection("a mask on the card");
    }
    inside(8);
    Tensor out = strided({n, t.dim()}, {1, std::max<int64_t>(n, 1)}, ScalarType::Long);
    return out;
}

void nonzero(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("nonzero");
    Call c(op, stack);
    stack->push_back(nonzero_of(c.tensor("self")));
}

void masked_select(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("masked_select");
    Call c(op, stack);
    Tensor x = c.tensor("self"), mask = c.tensor("mask");
    int64_t n = 1;
    for (int64_t d : at::infer_size(x.sizes(), mask.sizes()))
        n *= d;
    Tensor places = contig({n}, ScalarType::Long);
    note_selection("masked_select");
    stack->push_back(contig({selected(n)}, x.scalar_type()));
}

void unique(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("unique");
    Call c(op, stack);
    Tensor x = c.tensor("self");
    bool by_dim = c.at("dim").isInt();
    int64_t d = by_dim ? c.integer("dim") : 0;
    if (d < 0)
        d += x.dim();
    int64_t n = by_dim ? x.size(d) : x.numel();
    int64_t k = std::max<int64_t>(selected(n), n ? 1 : 0);
    IntList size = by_dim ? x.sizes().vec() : IntList{k};
    if (by_dim)
        size[d] = k;
    note_selection("unique");
    Tensor sorted = contig({n}, x.scalar_type()); // what the sort works on
    stack->push_back(contig(size, x.scalar_type()));
    bool inverse = c.flag("return_inverse");
    stack->push_back(contig(inverse ? (by_dim ? IntList{n} : x.sizes().vec()) : IntList{0},
                            ScalarType::Long));
    stack->push_back(contig({c.flag("return_counts") ? k : 0}, ScalarType::Long));
}

void repeat_interleave(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("repeat_interleave");
    Call c(op, stack);
    Tensor x = c.tensor("repeats");
    int64_t n = c.integer("output_size", -1);
    Tensor known = recall(x);
    if (n < 0 && known.defined())
        n = known.sum().item<int64_t>();
    if (n < 0) {
        n = x.numel();
        caveat("repeat_interleave repeats everything once");
    }
    stack->push_back(contig({n}, ScalarType::Long));
}

void bincount(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("bincount");
    Call c(op, stack);
    Tensor w = c.tensor("weights");
    caveat("bincount has as many bins as minlength says");
    stack->push_back(contig({std::max<int64_t>(c.integer("minlength"), 1)},
                            !w.defined() ? ScalarType::Long
                            : w.scalar_type() == ScalarType::Float ? ScalarType::Float
                                                                   : ScalarType::Double));
}

// Masks become indices and indices go to the card before the op itself.
// src: TensorAdvancedIndexing.cpp make_info, expandTensors
void indexed(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in(short_name(op));
    Call c(op, stack);
    Tensor self = c.tensor("self");
    std::vector<std::optional<Tensor>> plain;
    for (IValue v : c.at("indices").toList()) {
        Tensor t = v.isTensor() ? v.toTensor() : Tensor();
        if (!t.defined()) {
            plain.push_back(std::nullopt);
        } else if (t.scalar_type() == ScalarType::Bool || t.scalar_type() == ScalarType::Byte) {
            Tensor places = on(t) ? nonzero_of(t) : t.nonzero();
            for (int64_t d = 0; d < t.dim(); d++)
                plain.push_back(on(places) ? view_of(places, as_meta(places).select(1, d))
                                           : places.select(1, d));
        } else
            plain.push_back(t);
    }
    for (auto &t : plain)
        if (t && on(self) && !on(*t) && t->dim() > 0)
            t = contig(t->sizes(), ScalarType::Long);
    c10::List<std::optional<Tensor>> list;
    for (auto &t : plain)
        list.push_back(t);
    for (size_t i = 0; i < c.in.size(); i++)
        if (c.schema.arguments()[i].name() == "indices")
            c.in[i] = list;
    Stack out;
    std::vector<IValue> args;
    if (only_writes(c)) { // the values may be as many as a guessed mask selects
        forget(self);
        stack->push_back(self);
        return;
    }
    run_shapes(op, c, out, args);
    after_writes(c, args, false);
    give(c, out, stack);
}

// ---- rules: losses that compute every element before they reduce ----------------------------------------

Tensor elements(const Tensor &x, const Tensor &y)
{
    return x.sizes() == y.sizes() ? like(x)
                                  : contig(at::infer_size(x.sizes(), y.sizes()), x.scalar_type());
}
Tensor scalar_on(const Tensor &full)
{
    return at::native::as_strided_tensorimpl(full, {}, {}, 0);
}

// The result is made as large as the elementwise loss and then resized, which never
// shrinks a storage.  src: Loss.cpp TORCH_META_FUNC(mse_loss)
void pair_loss(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("loss");
    Call c(op, stack);
    Tensor x = c.tensor("self"), y = c.tensor("target"), result = elements(x, y);
    if (c.integer("reduction", 1)) {
        Tensor every = elements(x, y);
        reduce(every, all_dims(every));
        result = scalar_on(result);
    }
    stack->push_back(result);
}

void huber_loss(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("loss");
    Call c(op, stack);
    Tensor every = elements(c.tensor("self"), c.tensor("target")), result = every;
    if (c.integer("reduction", 1)) {
        result = contig({}, every.scalar_type());
        reduce(every, all_dims(every));
    }
    stack->push_back(result);
}

// src: cuda/Loss.cu binary_cross_entropy_out_cuda
void cross_entropy(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("loss");
    Call c(op, stack);
    Tensor x = c.tensor("self"), result = like(x);
    if (c.integer("reduction", 1)) {
        Tensor mean = contig({}, x.scalar_type());
        reduce(result, all_dims(result));
        result = scalar_on(result);
    }
    stack->push_back(result);
}

// ---- rules: convolution ---------------------------------------------------------------------------------

// src: ConvUtils.h cudnn_conv_suggest_memory_format
at::MemoryFormat conv_format(const Tensor &x, const Tensor &w)
{
    if (x.scalar_type() == ScalarType::Double)
        return at::MemoryFormat::Contiguous;
    auto a = x.suggest_memory_format(), b = w.suggest_memory_format();
    if (x.dim() == 4 &&
        (a == at::MemoryFormat::ChannelsLast || b == at::MemoryFormat::ChannelsLast))
        return at::MemoryFormat::ChannelsLast;
    if (x.dim() == 5 &&
        (a == at::MemoryFormat::ChannelsLast3d || b == at::MemoryFormat::ChannelsLast3d))
        return at::MemoryFormat::ChannelsLast3d;
    return at::MemoryFormat::Contiguous;
}

// What cuDNN chooses is not known: the tape says estimated, between none and twice
// the operands.
void conv_inside(const Tensor &x, const Tensor &w, IntArrayRef out)
{
    plim_err err = PLIM_ERR_INIT;
    plim_pretend_tag tag = tag_now();
    bool oom = false;
    int t = dtype_of(x.scalar_type());
    if (t < 0 || x.dim() > 5)
        return;
    check(plim_pretend_conv(g.device, (plim_dtype)t, (int)x.dim(), x.sizes().data(),
                            x.strides().data(), w.sizes().data(), out.data(), &tag, &oom, &err),
          err);
    if (oom)
        out_of_memory();
}

int64_t each(const IntList &v, int64_t i) { return v.size() == 1 ? v[0] : v[i]; }

IntList conv_size(const Tensor &x, const Tensor &w, const Call &c, bool transposed)
{
    IntList stride = c.ints("stride"), pad = c.ints("padding"), dil = c.ints("dilation"),
            extra = c.ints("output_padding"), out;
    int64_t groups = c.integer("groups", 1);
    out.push_back(x.size(0));
    out.push_back(transposed ? w.size(1) * groups : w.size(0));
    for (int64_t i = 0; i + 2 < x.dim(); i++) {
        int64_t k = each(dil, i) * (w.size(i + 2) - 1) + 1;
        out.push_back(transposed
                          ? (x.size(i + 2) - 1) * each(stride, i) - 2 * each(pad, i) + k +
                                each(extra, i)
                          : (x.size(i + 2) + 2 * each(pad, i) - k) / each(stride, i) + 1);
    }
    return out;
}

void convolve(const c10::OperatorHandle &op, Stack *stack, bool transposed)
{
    InOp in("convolution");
    Call c(op, stack);
    Tensor x = c.tensor("self"), w = c.tensor("weight");
    auto f = conv_format(x, w);
    IntList size = conv_size(x, w, c, transposed);
    Tensor xc = formatted(x, f);
    Tensor out = format(size, x.scalar_type(), f);
    Tensor wc = formatted(w, f);
    conv_inside(x, w, size);
    stack->push_back(out);
}
void convolution(const c10::OperatorHandle &op, Stack *s) { convolve(op, s, false); }
void convolution_transpose(const c10::OperatorHandle &op, Stack *s) { convolve(op, s, true); }

// PyTorch's own kernel: nothing inside.  src: DepthwiseConv2d.cu
void depthwise(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("convolution");
    Call c(op, stack);
    Tensor x = contiguous(c.tensor("self")), w = c.tensor("weight");
    stack->push_back(contig(conv_size(x, w, c, false), x.scalar_type()));
}

// src: Convolution.cpp use_cudnn_depthwise
bool is_native_depthwise(const Tensor &x, const Tensor &w, const Call &c, at::MemoryFormat f)
{
    int64_t groups = c.integer("groups", 1);
    return !c.flag("transposed") && x.dim() == 4 && groups > 1 && groups == x.size(1) &&
           w.size(0) % x.size(1) == 0 && f == at::MemoryFormat::Contiguous &&
           x.scalar_type() != ScalarType::Half;
}

void convolution_backward(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("convolution_backward");
    Call c(op, stack);
    Tensor grad = c.tensor("grad_output"), x = c.tensor("input"), w = c.tensor("weight"), dx, dw,
           db;
    auto f = conv_format(x, w);
    auto want = c.mask("output_mask");
    bool native = is_native_depthwise(x, w, c, f);
    Tensor gc = formatted(grad, f), xc;
    if (want[1] && !native)
        xc = formatted(x, f);
    if (want[0]) {
        dx = format(x.sizes(), x.scalar_type(), f);
        Tensor wc = formatted(w, f);
        if (!native)
            conv_inside(grad, w, x.sizes());
    }
    if (want[1]) {
        dw = format(w.sizes(), w.scalar_type(), f);
        if (!native)
            conv_inside(x, w, grad.sizes());
    }
    if (want[2]) {
        db = contig({grad.size(1)}, grad.scalar_type());
        reduce(gc, all_dims(gc) & ~2u);
    }
    stack->push_back(dx);
    stack->push_back(dw);
    stack->push_back(db);
}

// ---- rules: normalisation, dropout, embedding ---------------------------------------------------------------

void cudnn_batch_norm(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("batch_norm");
    Call c(op, stack);
    Tensor x = c.tensor("input");
    bool training = c.flag("training");
    ScalarType acc = wide(x.scalar_type());
    stack->push_back(like(x));
    for (int i = 0; i < 2; i++)
        stack->push_back(contig({training ? x.size(1) : 0}, acc));
    stack->push_back(contig({0}, ScalarType::Byte));
    forget(c.tensor("running_mean"));
    forget(c.tensor("running_var"));
}

void native_batch_norm(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("batch_norm");
    Call c(op, stack);
    Tensor x = c.tensor("input");
    bool training = c.flag("training");
    stack->push_back(like(x));
    for (int i = 0; i < 2; i++)
        stack->push_back(contig({training ? x.size(1) : 0}, wide(x.scalar_type())));
}

// src: cudnn/BatchNorm.cpp, Normalization.cu
void batch_norm_backward(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("batch_norm_backward");
    Call c(op, stack);
    Tensor x = c.tensor("input"), w = c.tensor("weight"),
           grad = c.at("grad_output").isTensor() ? c.tensor("grad_output") : c.tensor("grad_out");
    auto want = c.at("output_mask").isNone() ? std::vector<bool>{true, true, true}
                                             : c.mask("output_mask");
    Tensor gc = grad.is_contiguous(x.suggest_memory_format()) ? grad : like(x);
    stack->push_back(want[0] ? like(x) : Tensor());
    for (int i = 1; i <= 2; i++)
        stack->push_back(want[i] && w.defined() ? contig(w.sizes(), w.scalar_type()) : Tensor());
}

void native_dropout(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("dropout");
    Call c(op, stack);
    Tensor x = c.tensor("input");
    Tensor mask = like(x, ScalarType::Bool); // first, as in Dropout.cu
    stack->push_back(like(x));
    stack->push_back(mask);
}

void native_dropout_backward(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("dropout_backward");
    Call c(op, stack);
    Tensor grad = c.tensor("grad_output");
    stack->push_back(format(grad.sizes(), grad.scalar_type(), grad.suggest_memory_format()));
}

// src: layer_norm_kernel.cu
void layer_norm(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("layer_norm");
    Call c(op, stack);
    Tensor x = c.tensor("input");
    IntList one = x.sizes().vec();
    size_t k = c.ints("normalized_shape").size();
    for (size_t i = one.size() - k; i < one.size(); i++)
        one[i] = 1;
    Tensor xc = contiguous(x);
    stack->push_back(contig(x.sizes(), x.scalar_type()));
    for (int i = 0; i < 2; i++)
        stack->push_back(contig(one, wide(x.scalar_type())));
}

void layer_norm_backward(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("layer_norm_backward");
    Call c(op, stack);
    Tensor x = contiguous(c.tensor("input")), w = c.tensor("weight"), b = c.tensor("bias");
    auto want = c.mask("output_mask");
    Tensor dx = want[0] ? contig(x.sizes(), x.scalar_type()) : Tensor();
    Tensor dw = want[1] && w.defined() ? contig(w.sizes(), w.scalar_type()) : Tensor();
    Tensor db = want[2] && b.defined() ? contig(b.sizes(), b.scalar_type()) : Tensor();
    Tensor gc = contiguous(c.tensor("grad_out"));
    int64_t cols = 1;
    for (int64_t n : c.ints("normalized_shape"))
        cols *= n;
    int64_t rows = cols ? x.numel() / cols : 0;
    if (g.torch >= 208 && dw.defined() && rows > 65536 && cols && cols / 32 < g.sms / 2) {
        // partial sums, whose sums take the place of the results made before
        int64_t parts = std::min((rows + 31) / 32, 32768 / ((cols + 31) / 32));
        Tensor pw = inside({parts, cols}, w.scalar_type()),
               pb = db.defined() ? inside({parts, cols}, w.scalar_type()) : Tensor();
        for (Tensor *t : {&dw, &db}) {
            if (!t->defined())
                continue;
            Tensor sum = contig(t->sizes(), t->scalar_type());
            reduce(pw, 1);
            *t = sum;
        }
    }
    stack->push_back(dx);
    stack->push_back(dw);
    stack->push_back(db);
}

bool group_norm_1d(const Tensor &x)
{
    for (int64_t i = 2; i < x.dim(); i++)
        if (x.size(i) != 1)
            return false;
    return true;
}

// src: group_norm_kernel.cu
void group_norm(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("group_norm");
    Call c(op, stack);
    Tensor x = c.tensor("input");
    int64_t n = c.integer("N"), ch = c.integer("C"), groups = c.integer("group", 1);
    stack->push_back(contig(x.sizes(), x.scalar_type()));
    for (int i = 0; i < 2; i++)
        stack->push_back(contig({n, groups}, x.scalar_type()));
    Tensor w = c.tensor("weight"), b = c.tensor("bias");
    if ((w.defined() || b.defined()) && !group_norm_1d(x)) // y = a x + b
        Tensor ta = inside({n, ch}, wide(x.scalar_type())),
               tb = inside({n, ch}, wide(x.scalar_type()));
}

void group_norm_backward(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("group_norm_backward");
    Call c(op, stack);
    Tensor x = c.tensor("input"), w = c.tensor("weight"), gc = contiguous(c.tensor("grad_out")),
           xc = contiguous(x);
    auto want = c.mask("output_mask");
    ScalarType acc = wide(x.scalar_type());
    int64_t n = c.integer("N"), ch = c.integer("C"), groups = c.integer("group", 1);
    Tensor dx = want[0] ? contig(x.sizes(), x.scalar_type()) : Tensor();
    Tensor dw = want[1] && w.defined() ? contig(w.sizes(), w.scalar_type()) : Tensor();
    Tensor db = want[2] && w.defined() ? contig(w.sizes(), w.scalar_type()) : Tensor();
    bool flat = group_norm_1d(x);
    Tensor ds, sb;
    if (!flat) {
        ds = inside({n, ch}, acc);
        sb = inside({n, ch}, acc);
    }
    if (want[0]) {
        Tensor c2 = inside({n, groups}, acc), c3 = inside({n, groups}, acc),
               c1 = flat || !w.defined() ? Tensor() : inside({n, ch}, acc);
    }
    stack->push_back(dx);
    stack->push_back(dw);
    stack->push_back(db);
}

// src: Embedding.cu: up to 3072 indices are added atomically, more are sorted;
// EmbeddingBackwardKernel.cu: ten rows a partial sum
void embedding_backward(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("embedding_backward");
    Call c(op, stack);
    Tensor grad = c.tensor("grad_output"), idx = c.tensor("indices");
    int64_t v = c.integer("num_weights"), n = idx.numel(), d = grad.size(-1);
    Tensor gc = contiguous(grad);
    if (n <= 3072 && !c.flag("scale_grad_by_freq")) {
        stack->push_back(contig({v, d}, grad.scalar_type()));
        return;
    }
    bool by_freq = c.flag("scale_grad_by_freq");
    Tensor sorted = ids(n), orig = ids(n);
    {
        Tensor range = ids(n);
        inside(16 * n);
    }
    Tensor each = by_freq ? ids(n) : Tensor();
    Tensor dw = contig({v, d}, grad.scalar_type());
    int64_t segments = std::min(n, v), parts = n / 10 + segments;
    Tensor offsets = ids(n), count = ids(1), partials = ids(segments), starts = ids(segments),
           total = ids(1), segment = ids(parts),
           sums = inside({parts, d}, wide(grad.scalar_type()));
    stack->push_back(dw);
}

// src: ForeachReduceOp.cu: one partial for each chunk of 65536 elements of the
// longest tensor, for every tensor
void foreach_norm(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("_foreach_norm");
    Call c(op, stack);
    std::vector<Tensor> list = c.at("self").toTensorVector(), out;
    int64_t chunks = 1;
    for (const Tensor &t : list)
        chunks = std::max(chunks, up(t.numel(), 65536) / 65536);
    ScalarType t = list.empty() ? ScalarType::Float : list[0].scalar_type();
    if (c.at("dtype").isInt())
        t = (ScalarType)c.integer("dtype");
    Tensor partial = inside({(int64_t)list.size() * chunks}, wide(t));
    for (size_t i = 0; i < list.size(); i++)
        out.push_back(contig({}, t));
    stack->push_back(out);
}

// ---- rules: attention -----------------------------------------------------------------------------------------

enum { MATH, FLASH, EFFICIENT }; // as at::SDPBackend numbers them

// src: cuda/sdp_utils.cpp; the order flash, efficient, math of a card that cuDNN's
// attention is not preferred on
int64_t attention_backend(const Tensor &q, const Tensor &k, const Tensor &v,
                          const std::optional<Tensor> &mask, double, bool causal,
                          std::optional<double>, bool gqa)
{
    auto &context = at::globalContext();
    ScalarType t = q.scalar_type();
    bool half = t == ScalarType::Half || t == ScalarType::BFloat16;
    bool has_mask = mask && mask->defined();
    if (q.dim() != 4 || (t == ScalarType::BFloat16 && g.cc < 80))
        return MATH;
    bool unit = q.stride(-1) == 1 && k.stride(-1) == 1 && v.stride(-1) == 1;
    bool heads = q.size(1) == k.size(1) && k.size(1) == v.size(1);
    if (context.userEnabledFlashSDP() && half && g.cc >= 80 && !has_mask && unit &&
        q.size(-1) <= 256 && q.size(-1) == v.size(-1) && (heads || gqa) &&
        !(causal && q.size(2) != k.size(2)))
        return FLASH;
    int64_t align = half ? 8 : 4;
    if (context.userEnabledMemEfficientSDP() && g.cc >= 50 &&
        (half || t == ScalarType::Float) && heads && unit && q.size(-1) % align == 0 &&
        v.size(-1) % align == 0)
        return EFFICIENT;
    return MATH;
}

// [B,H,S,D] laid out as the kernels want it: itself or a copy.
// src: attention_backward.cu, grad_out.contiguous() after transpose(1, 2)
Tensor head_last(const Tensor &t)
{
    int64_t h = t.size(1), s = t.size(2), d = t.size(3);
    IntList stride = {s * h * d, d, h * d, 1};
    Tensor seen = as_meta(t).transpose(1, 2);
    return seen.is_contiguous() ? t : strided(t.sizes(), stride, t.scalar_type());
}

Tensor heads_inside(IntArrayRef bhsd, ScalarType t) // [B,S,H,D] in memory, seen as [B,H,S,D]
{
    int64_t b = bhsd[0], h = bhsd[1], s = bhsd[2], d = bhsd[3];
    (void)b;
    return strided(bhsd, {s * h * d, d, h * d, 1}, t);
}

// src: transformers/cuda/attention.cu _scaled_dot_product_flash_attention_cuda
void flash(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("scaled_dot_product_attention");
    Call c(op, stack);
    Tensor q = c.tensor("query"), k = c.tensor("key");
    int64_t b = q.size(0), h = q.size(1), s = q.size(2);
    bool on_card = g.torch >= 207; // the random state; before that on the CPU
    Tensor out = like(q), lse = contig({b, h, s}, ScalarType::Float), seed, offset;
    if (on_card) {
        seed = contig({2}, ScalarType::Long);
        offset = contig({}, ScalarType::Long);
    } else {
        seed = at::empty({}, at::TensorOptions(ScalarType::Long));
        offset = at::empty({}, at::TensorOptions(ScalarType::Long));
    }
    IValue results[] = {out,         lse,    Tensor(), Tensor(), s,
                        k.size(2),   seed,   offset,   contig({0}, q.scalar_type())};
    for (IValue &v : results)
        stack->push_back(std::move(v));
}

// src: attention_backward.cu, flash_api.cpp mha_bwd
void flash_backward(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("scaled_dot_product_attention_backward");
    Call c(op, stack);
    Tensor grad = c.tensor("grad_out"), q = c.tensor("query"), k = c.tensor("key"),
           v = c.tensor("value"), out = c.tensor("out");
    int64_t b = q.size(0), h = q.size(1), s = q.size(2), d = q.size(3), hk = k.size(1);
    int64_t rows = up(s, 128), width = d <= 128 ? up(d, 32) : up(d, 64);
    Tensor gc = head_last(grad), oc = head_last(out);
    Tensor dq = like(q), dk = like(k), dv = like(v);
    Tensor softmax_d = inside({b, h, rows}, ScalarType::Float),
           acc = inside({b, rows, h, width}, ScalarType::Float), ek, ev;
    if (hk != h) {
        ek = inside({b, k.size(2), h, d}, q.scalar_type());
        ev = inside({b, k.size(2), h, d}, q.scalar_type());
    }
    stack->push_back(dq);
    stack->push_back(dk);
    stack->push_back(dv);
}

void efficient(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("scaled_dot_product_attention");
    Call c(op, stack);
    Tensor q = c.tensor("query"), v = c.tensor("value");
    int64_t b = q.size(0), h = q.size(1), s = q.size(2);
    Tensor out = heads_inside({b, h, s, v.size(3)}, q.scalar_type());
    Tensor lse = contig({b, h, c.flag("compute_log_sumexp") ? up(s, 32) : 0}, ScalarType::Float);
    if (q.scalar_type() != ScalarType::Float && std::max(q.size(3), v.size(3)) > 128)
        contig({b, s, h, v.size(3)}, ScalarType::Float); // accumulated in memory
    stack->push_back(out);
    stack->push_back(lse);
    for (int i = 0; i < 2; i++) // the random state stays on the CPU
        stack->push_back(at::empty({}, at::TensorOptions(ScalarType::Long)));
}

// src: attention_backward.cu _efficient_attention_backward
void efficient_backward(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("scaled_dot_product_attention_backward");
    Call c(op, stack);
    Tensor grad = c.tensor("grad_out_"), q = c.tensor("query"), k = c.tensor("key"),
           v = c.tensor("value"), bias = c.tensor("attn_bias");
    if (!grad.defined())
        grad = c.tensor("grad_out");
    auto want = c.mask("grad_input_mask");
    ScalarType t = q.scalar_type();
    int64_t b = q.size(0), h = q.size(1), s = q.size(2), d = q.size(3), sk = k.size(2),
            dv = v.size(3);
    Tensor gc = head_last(grad);
    Tensor gq = heads_inside({b, h, s, d}, t), gk = heads_inside({b, h, sk, d}, t),
           gv = heads_inside({b, h, sk, dv}, t), gb, delta, work;
    if (want[3] && bias.defined())
        gb = contig({b, h, s, up(sk, 16)}, t);
    if (t != ScalarType::Float) {
        delta = contig({b, h, s}, ScalarType::Float);
        // fp32 accumulators of dq; of dk, dv for wide heads
        int64_t n = up(s, 64) * up(d, 32);
        if (d > 64)
            n += up(sk, 64) * (up(d, 32) + up(dv, 32));
        work = inside({b, h, n}, ScalarType::Float);
    } else { // (g * out).sum(-1).transpose(-2, -1).contiguous()
        Tensor product = contig({b, s, h, dv}, ScalarType::Float);
        Tensor sums = contig({b, s, h}, ScalarType::Float);
        delta = h == 1 || s == 1 ? sums : contig({b, h, s}, ScalarType::Float);
    }
    stack->push_back(gq);
    stack->push_back(gk);
    stack->push_back(gv);
    stack->push_back(gb);
}

// ---- rules: recurrent nets ----------------------------------------------------------------------------------------

int64_t rnn_gates(int64_t mode) { return mode == 2 ? 4 : mode == 3 ? 3 : 1; }

int64_t rnn_weights(const std::vector<Tensor> &list)
{
    int64_t n = 0;
    for (const Tensor &t : list)
        n += t.numel();
    return n;
}

// Keeps what backward needs of every step and layer: cuDNN's reserve is not
// documented; gates, cell and output of each direction is what its algorithm has to
// keep.
void cudnn_rnn(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("_cudnn_rnn");
    Call c(op, stack);
    Tensor x = c.tensor("input"), buffer = c.tensor("weight_buf"), hx = c.tensor("hx"),
           cx = c.tensor("cx");
    std::vector<Tensor> weights = c.at("weight").toTensorVector();
    IntList packed = c.ints("batch_sizes"), size = x.sizes().vec();
    int64_t mode = c.integer("mode"), hidden = c.integer("hidden_size"),
            proj = c.integer("proj_size"), layers = c.integer("num_layers"),
            dirs = c.flag("bidirectional") ? 2 : 1, out = proj ? proj : hidden;
    bool train = c.flag("train"), first = c.flag("batch_first") && packed.empty();
    Tensor xc = first ? contig({size[1], size[0], size[2]}, x.scalar_type()) : contiguous(x);
    int64_t steps = 1;
    for (size_t i = 0; i + 1 < size.size(); i++)
        steps *= size[i];
    if (!buffer.defined())
        buffer = contig({rnn_weights(weights)}, x.scalar_type());
    IntList y = xc.sizes().vec();
    y.back() = out * dirs;
    Tensor output = contig(y, x.scalar_type()), hy = contig(hx.sizes(), hx.scalar_type()),
           cy = cx.defined() ? contig(cx.sizes(), cx.scalar_type())
                             : contig({0}, x.scalar_type());
    int64_t kept = steps * hidden * dirs * layers * (rnn_gates(mode) + (mode == 2 ? 2 : 1));
    Running before = now;
    now.category = PLIM_CAT_WORKSPACE;
    Tensor reserve = contig({train ? kept * (int64_t)x.itemsize() : 0}, ScalarType::Byte);
    now = before;
    if (first) {
        Tensor seen = as_meta(output).transpose(0, 1);
        output = view_of(output, seen);
    }
    stack->push_back(output);
    stack->push_back(hy);
    stack->push_back(cy);
    stack->push_back(reserve);
    stack->push_back(buffer);
}

void cudnn_rnn_backward(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("_cudnn_rnn_backward");
    Call c(op, stack);
    Tensor x = c.tensor("input"), hx = c.tensor("hx"), cx = c.tensor("cx"),
           grad = c.tensor("grad_output"), out = c.tensor("output");
    std::vector<Tensor> weights = c.at("weight").toTensorVector(), dw;
    auto want = c.mask("output_mask");
    bool first = c.flag("batch_first") && c.ints("batch_sizes").empty();
    Tensor gc = grad.defined() && grad.is_contiguous() && !first
                    ? grad
                    : contig(out.sizes(), out.scalar_type());
    Tensor dx = contig(x.sizes(), x.scalar_type());
    if (first) {
        IntList s = x.sizes().vec();
        dx = strided(s, {s[2], s[0] * s[2], 1}, x.scalar_type());
    }
    Tensor dhx = contig(hx.sizes(), hx.scalar_type()),
           dcx = cx.defined() ? contig(cx.sizes(), cx.scalar_type()) : Tensor();
    if (want[3]) { // one buffer, seen as the weights
        Tensor all = contig({rnn_weights(weights)}, x.scalar_type());
        int64_t at_ = 0;
        for (const Tensor &w : weights) {
            dw.push_back(at::native::as_strided_tensorimpl(
                all, w.sizes(), dense_strides(w.sizes()), at_));
            at_ += w.numel();
        }
    }
    stack->push_back(dx);
    stack->push_back(dhx);
    stack->push_back(dcx);
    stack->push_back(dw);
}

void cudnn_rnn_flatten(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("_cudnn_rnn_flatten_weight");
    Call c(op, stack);
    std::vector<Tensor> weights = c.at("weight_arr").toTensorVector();
    Tensor all = contig({rnn_weights(weights)}, weights[0].scalar_type());
    int64_t at_ = 0;
    for (Tensor &w : weights) { // the weights become views of the buffer
        auto *impl = w.unsafeGetTensorImpl();
        impl->set_storage_keep_dtype(all.storage());
        impl->set_storage_offset(at_);
        impl->set_sizes_and_strides(w.sizes().vec(), dense_strides(w.sizes()));
        at_ += w.numel();
    }
    stack->push_back(all);
}

// src: cudnn/RNN.cpp _cudnn_impl; mode 0 relu, 1 tanh, 2 lstm, 3 gru
Tensor rnn_buffer(at::TensorList params)
{
    if (params.empty() || !params[0].has_storage())
        return Tensor();
    for (const Tensor &p : params)
        if (!p.storage().is_alias_of(params[0].storage()))
            return Tensor();
    int64_t n = 0;
    for (const Tensor &p : params)
        n += p.numel();
    Tensor flat = params[0].detach();
    return at::native::as_strided_tensorimpl(flat, {n}, {1}, 0);
}

std::tuple<Tensor, Tensor, Tensor> rnn(const Tensor &x, const Tensor &hx, const Tensor &cx,
                                       at::TensorList params, bool biases, int64_t mode,
                                       int64_t layers, double p, bool train, bool both,
                                       bool first, IntArrayRef packed = {})
{
    int64_t hidden = mode == 2 && cx.defined() ? cx.size(2) : hx.size(2);
    int64_t proj = mode == 2 && cx.defined() && hx.size(2) != cx.size(2) ? hx.size(2) : 0;
    int64_t stride = biases ? 4 : 2;
    if (proj)
        stride++;
    std::optional<Tensor> buffer;
    {
        at::NoGradGuard no_grad;
        Tensor b = rnn_buffer(params);
        if (b.defined())
            buffer = b;
    }
    auto r = at::_cudnn_rnn(x, params, stride, buffer, hx,
                            cx.defined() ? std::optional<Tensor>(cx) : std::nullopt, mode, hidden,
                            proj, layers, first, p, train, both, packed, std::nullopt);
    return {std::get<0>(r), std::get<1>(r), std::get<2>(r)};
}

void lstm(Tensor &out, Tensor &hy, Tensor &cy, const Tensor &x, at::TensorList hx,
          at::TensorList params, bool biases, int64_t layers, double p, bool train, bool both,
          bool first)
{
    std::tie(out, hy, cy) =
        rnn(x, hx[0], hx[1], params, biases, 2, layers, p, train, both, first);
}

template <int64_t Mode>
void plain_rnn(Tensor &out, Tensor &hy, const Tensor &x, const Tensor &hx, at::TensorList params,
               bool biases, int64_t layers, double p, bool train, bool both, bool first)
{
    Tensor none;
    std::tie(out, hy, none) =
        rnn(x, hx, Tensor(), params, biases, Mode, layers, p, train, both, first);
}

// Of packed sequences; how many there are at each step is known on the CPU.
IntArrayRef sizes_of(const Tensor &t)
{
    return IntArrayRef(t.const_data_ptr<int64_t>(), (size_t)t.numel());
}

void packed_lstm(Tensor &out, Tensor &hy, Tensor &cy, const Tensor &x, const Tensor &sizes,
                 at::TensorList hx, at::TensorList params, bool biases, int64_t layers, double p,
                 bool train, bool both)
{
    std::tie(out, hy, cy) = rnn(x, hx[0], hx[1], params, biases, 2, layers, p, train, both,
                                false, sizes_of(sizes));
}

template <int64_t Mode>
void packed_rnn(Tensor &out, Tensor &hy, const Tensor &x, const Tensor &sizes, const Tensor &hx,
                at::TensorList params, bool biases, int64_t layers, double p, bool train,
                bool both)
{
    Tensor none;
    std::tie(out, hy, none) = rnn(x, hx, Tensor(), params, biases, Mode, layers, p, train, both,
                                  false, sizes_of(sizes));
}

} // namespace

TORCH_LIBRARY_IMPL(_, CUDA, m)
{
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

#define RULE(name, fn) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fn>())
TORCH_LIBRARY_IMPL(aten, CUDA, m)
{
    m.impl("empty.memory_format", TORCH_FN(empty_format));
    m.impl("empty_strided", TORCH_FN(empty_strided));
    m.impl("as_strided", TORCH_FN(as_strided));
    m.impl("view", TORCH_FN(at::native::view));
    m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
    m.impl("resize_", TORCH_FN(resize_));
    m.impl("copy_", TORCH_FN(copy_));
    m.impl("_local_scalar_dense", TORCH_FN(local_scalar));
    m.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
    RULE("set_.source_Storage_storage_offset", set_storage);
    RULE("set_.source_Storage", set_storage);
    RULE("set_", set_empty);
    RULE("equal", equal);
    RULE("fill_.Scalar", fill_);
    RULE("zero_", fill_);
    RULE("record_stream", record_stream);

    RULE("nonzero", nonzero);
    RULE("masked_select", masked_select);
    RULE("_unique2", unique);
    RULE("unique_dim", unique);
    RULE("unique_consecutive", unique);
    RULE("unique_dim_consecutive", unique);
    RULE("repeat_interleave.Tensor", repeat_interleave);
    RULE("bincount", bincount);
    RULE("index.Tensor", indexed);
    RULE("_unsafe_index.Tensor", indexed);
    RULE("_index_put_impl_", indexed);

    RULE("mse_loss", pair_loss);
    RULE("smooth_l1_loss", pair_loss);
    RULE("huber_loss", huber_loss);
    RULE("binary_cross_entropy", cross_entropy);

    RULE("cudnn_convolution", convolution);
    RULE("cudnn_convolution_transpose", convolution_transpose);
    RULE("_conv_depthwise2d", depthwise);
    RULE("conv_depthwise3d", depthwise);
    RULE("convolution_backward", convolution_backward);

    RULE("cudnn_batch_norm", cudnn_batch_norm);
    RULE("cudnn_batch_norm_backward", batch_norm_backward);
    RULE("native_batch_norm", native_batch_norm);
    RULE("native_batch_norm_backward", batch_norm_backward);
    RULE("native_dropout", native_dropout);
    RULE("native_dropout_backward", native_dropout_backward);
    RULE("native_layer_norm", layer_norm);
    RULE("native_layer_norm_backward", layer_norm_backward);
    RULE("native_group_norm", group_norm);
    RULE("native_group_norm_backward", group_norm_backward);
    RULE("embedding_dense_backward", embedding_backward);
    RULE("_foreach_norm.Scalar", foreach_norm);

    RULE("_scaled_dot_product_flash_attention", flash);
    RULE("_scaled_dot_product_flash_attention_backward", flash_backward);
    RULE("_scaled_dot_product_efficient_attention", efficient);
    RULE("_scaled_dot_product_efficient_attention_backward", efficient_backward);

    RULE("_use_cudnn_ctc_loss", no);
    RULE("_use_cudnn_ctc_loss.Tensor", no);
    RULE("_use_miopen_ctc_loss", no);
    RULE("_use_miopen_ctc_loss.Tensor", no);
    RULE("_cudnn_rnn", cudnn_rnn);
    RULE("_cudnn_rnn_backward", cudnn_rnn_backward);
    RULE("_cudnn_rnn_flatten_weight", cudnn_rnn_flatten);
}

namespace at {
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", Hooks)
}

// ---- what front.py calls ---------------------------------------------------------------------------------------------

// Functional and in-place forms of structured ops come with a composite kernel that
// would allocate before the op is known: they go to the fallback too.
static void take_structured_ops()
{
    static torch::Library lib(torch::Library::IMPL, "aten", DispatchKey::CUDA, __FILE__, __LINE__);
    auto &dispatcher = c10::Dispatcher::singleton();
    for (const auto &name : dispatcher.getAllOpNames()) {
        auto op = dispatcher.findOp(name);
        if (name.name.compare(0, 6, "aten::") == 0 && op && op->hasSchema() &&
            op->hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional) &&
            !op->hasKernelForDispatchKey(DispatchKey::CUDA))
            lib.impl(c10::toString(name).c_str(),
                     torch::CppFunction::makeFromBoxedFunction<&fallback>());
    }
}

extern "C" {

// `skip`: path prefixes that are not the user's, one a line.
__attribute__((visibility("default"))) void plimsoll_shim_open(plim_pretend *device, int torch,
                                                               double scalar, double mask_fraction,
                                                               const char *skip, const char *cwd)
{
    plim_pretend_card card;
    plim_pretend_card_get(device, &card);
    g.pid = getpid();
    g.torch = torch;
    g.cc = card.cc;
    g.sms = card.sms;
    g.workspace = card.workspace;
    g.scalar = scalar;
    g.mask_fraction = mask_fraction;
    py.open();
    py.cwd = std::string(cwd) + "/";
    for (const char *p = skip; *p;) {
        size_t n = strcspn(p, "\n");
        if (n)
            py.skip.emplace_back(p, n);
        p += n + (p[n] == '\n');
    }
    c10::SetAllocator(DeviceType::CUDA, &allocator);
    static c10::impl::DeviceGuardImplRegistrar registrar(DeviceType::CUDA, &guard);
    take_structured_ops();
    at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&attention_backend);
    at::native::lstm_cudnn_stub.set_cuda_dispatch_ptr(&lstm);
    at::native::rnn_relu_cudnn_stub.set_cuda_dispatch_ptr(&plain_rnn<0>);
    at::native::rnn_tanh_cudnn_stub.set_cuda_dispatch_ptr(&plain_rnn<1>);
    at::native::gru_cudnn_stub.set_cuda_dispatch_ptr(&plain_rnn<3>);
    at::native::lstm_packed_cudnn_stub.set_cuda_dispatch_ptr(&packed_lstm);
    at::native::rnn_relu_packed_cudnn_stub.set_cuda_dispatch_ptr(&packed_rnn<0>);
    at::native::rnn_tanh_packed_cudnn_stub.set_cuda_dispatch_ptr(&packed_rnn<1>);
    at::native::gru_packed_cudnn_stub.set_cuda_dispatch_ptr(&packed_rnn<3>);
    g.device = device;
}

__attribute__((visibility("default"))) void plimsoll_shim_close() { g.device = nullptr; }

// Where the user's code is now; "" if nowhere.
__attribute__((visibility("default"))) const char *plimsoll_shim_line()
{
    const char *line = python_line();
    return line ? line : "";
}

// The storage at this address turned out to be a parameter, a gradient ...
__attribute__((visibility("default"))) void plimsoll_shim_label(uint64_t addr, int category,
                                                                const char *name)
{
    uint32_t block;
    {
        std::lock_guard<std::mutex> lock(g.mu);
        auto it = g.blocks.find(addr);
        if (it == g.blocks.end() || !g.device)
            return;
        block = it->second;
    }
    plim_pretend_label(g.device, block, (plim_category)category, name, nullptr);
}

__attribute__((visibility("default"))) int64_t plimsoll_shim_stream() { return current_stream; }
__attribute__((visibility("default"))) void plimsoll_shim_set_stream(int64_t id)
{
    current_stream = id;
}
}
