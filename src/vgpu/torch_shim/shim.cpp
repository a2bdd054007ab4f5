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
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/detail/CUDAHooksInterface.h>
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
    bool mine = !path.empty() && (path[0] != '<' || path == "<string>") &&
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
    const char *line = nullptr; // a view's node has none: that of the op before it
    for (uint64_t i = std::min<uint64_t>(seq + 1, g.node_line.size()); i > 0 && !line; i--)
        line = g.node_line[i - 1];
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
    if (!g.node_line[next - 1]) // the first op to run is the node's own
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
    case ScalarType::UInt16: return PLIM_U16;
    case ScalarType::UInt32: return PLIM_U32;
    case ScalarType::UInt64: return PLIM_U64;
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

plim_vgpu_tag tag_now()
{
    plim_vgpu_tag t = {};
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
    char text[1024];
    plim_vgpu_oom_text(g.device, text, sizeof text);
    TORCH_CHECK_WITH(OutOfMemoryError, false, text);
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
    plim_vgpu_free(g.device, block, nullptr);
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
        plim_vgpu_tag tag = tag_now();
        uint32_t block;
        uint64_t addr;
        check(plim_vgpu_malloc(g.device, n, (uint16_t)current_stream, &tag, &block, &addr,
                                  &err),
              err);
        if (block == PLIM_VGPU_NONE)
            out_of_memory();
        return hold(block, addr);
    }
    // A block that is somebody's from now on.
    c10::DataPtr hold(uint32_t block, uint64_t addr)
    {
        std::lock_guard<std::mutex> lock(g.mu);
        g.blocks[addr] = block;
        void *p = reinterpret_cast<void *>((uintptr_t)addr);
        return {p, p, &release, Device(c10::kCUDA, 0)};
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
        TORCH_CHECK(d.index() <= 0, "CUDA error: invalid device ordinal: there is one pretend "
                                    "GPU, cuda:0, and the script asks for cuda:",
                    (int)d.index());
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
            plim_vgpu_sync(g.device, (uint16_t)s.id(), nullptr);
    }
    void synchronizeDevice(const DeviceIndex) const override
    {
        if (alive())
            plim_vgpu_sync(g.device, PLIM_VGPU_ALL_STREAMS, nullptr);
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
        plim_vgpu_record_stream(g.device, block, (uint16_t)s.id(), nullptr);
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
Tensor like(const Tensor &t, ScalarType s) // empty_like, preserving a dense layout
{
    if (t.is_non_overlapping_and_dense())
        return strided(t.sizes(), t.strides(), s);
    IntList stride = at::infer_dense_strides(t.sizes(), t.strides());
    return strided(t.sizes(), stride, s);
}
Tensor like(const Tensor &t) { return like(t, t.scalar_type()); }
IntList dense_strides(IntArrayRef size)
{
    IntList out(size.size());
    int64_t n = 1;
    for (size_t i = size.size(); i--; n *= std::max<int64_t>(size[i], 1))
        out[i] = n;
    return out;
}
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
    plim_vgpu_note(g.device, line ? line : "", what.c_str(), nullptr);
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
    bool flag(const char *name, bool usual = false) const
    {
        const IValue &v = at(name);
        return v.isBool() ? v.toBool() : usual;
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

// ---- kernels that libplimsoll knows --------------------------------------------------------------------

plim_vgpu_tensor geometry(const Tensor &t)
{
    plim_vgpu_tensor out = {};
    out.dtype = t.defined() ? dtype_of(t.scalar_type()) : -1;
    out.rank = t.defined() ? (int)t.dim() : 0;
    for (int i = 0; i < out.rank && i < 8; i++) {
        out.dim[i] = t.size(i);
        out.stride[i] = t.stride(i);
    }
    return out;
}

// An op's arguments in the library's words.
struct Words {
    std::vector<plim_vgpu_arg> args;
    std::vector<std::vector<plim_vgpu_tensor>> tensors;
    std::vector<std::vector<int64_t>> ints;
    std::vector<Tensor> given; // the tensors in order
    bool ok = true;            // false: one is of a kind that it does not know

    explicit Words(const Call &c) : Words(c.in.size())
    {
        for (size_t i = 0; i < c.in.size(); i++)
            set(i, c.schema.arguments()[i].name().c_str(), c.in[i]);
    }
    Words(const char *name, const Tensor &t) : Words(1) { set(0, name, t); }
    explicit Words(size_t n) : args(n), tensors(n), ints(n) {}
    void set(size_t i, const char *name, const IValue &v)
    {
        args[i].name = name;
        word(v, args[i], tensors[i], ints[i]);
        args[i].tensors = tensors[i].data();
        args[i].ints = ints[i].data();
        args[i].n = (uint32_t)(ints[i].empty() ? tensors[i].size() : ints[i].size());
        if (!strcmp(name, "dtype") && !ints[i].empty())
            ints[i][0] = dtype_of((ScalarType)ints[i][0]);
    }
    void add(const Tensor &t, std::vector<plim_vgpu_tensor> &list)
    {
        given.push_back(t);
        list.push_back(geometry(t));
        ok = ok && (!t.defined() || (list.back().dtype >= 0 && t.dim() <= 8));
    }
    void word(const IValue &v, plim_vgpu_arg &a, std::vector<plim_vgpu_tensor> &list,
              std::vector<int64_t> &numbers)
    {
        if (v.isTensor()) {
            a.kind = PLIM_VGPU_TENSOR;
            add(v.toTensor(), list);
        } else if (v.isBool() || v.isInt() || v.isSymInt()) {
            a.kind = PLIM_VGPU_INT;
            numbers.push_back(v.isBool()  ? v.toBool()
                              : v.isInt() ? v.toInt()
                                          : v.toSymInt().expect_int());
        } else if (v.isDouble()) {
            a.kind = PLIM_VGPU_FLOAT;
            a.number = v.toDouble();
        } else if (v.isList()) {
            for (const IValue &e : v.toListRef()) {
                if (e.isTensor() || (e.isNone() && numbers.empty()))
                    add(e.isTensor() ? e.toTensor() : Tensor(), list);
                else if (e.isBool() || e.isInt() || e.isSymInt())
                    numbers.push_back(e.isBool()  ? e.toBool()
                                      : e.isInt() ? e.toInt()
                                                  : e.toSymInt().expect_int());
            }
            a.kind = list.empty() ? PLIM_VGPU_INTS : PLIM_VGPU_TENSORS;
        }
    }
};

using Results = std::vector<plim_vgpu_result>;

bool run_kernel(const char *name, const Words &w, Results &out)
{
    plim_err err = PLIM_ERR_INIT;
    plim_vgpu_tag tag = tag_now();
    plim_vgpu_kernel_call call = {};
    call.args = w.args.data();
    call.n_args = (uint32_t)w.args.size();
    call.stream = (uint16_t)current_stream;
    call.autograd_thread = torch::autograd::get_current_node() != nullptr;
    call.tag = &tag;
    out.resize(w.given.size() + 16);
    uint32_t n = 0;
    bool oom = false;
    check(plim_vgpu_kernel(g.device, name, &call, out.data(), (uint32_t)out.size(), &n, &oom,
                              &err),
          err);
    if (oom)
        out_of_memory();
    out.resize(n);
    return n > 0;
}

ScalarType type_of(int dtype)
{
    for (int i = 0; i < (int)ScalarType::NumOptions; i++)
        if (dtype_of((ScalarType)i) == dtype)
            return (ScalarType)i;
    return ScalarType::Byte; // not reached: every type that a kernel makes has a name above
}

// The results as tensors.  Several on one storage lie there one after the other.
std::vector<Tensor> tensors_of(const Results &results, const Words &w)
{
    std::vector<Tensor> out;
    std::vector<int64_t> used(results.size(), 0); // elements of each one's storage
    for (size_t i = 0; i < results.size(); i++) {
        const plim_vgpu_result &r = results[i];
        if (r.tensor.dtype < 0) {
            out.emplace_back();
            continue;
        }
        if (r.argument != PLIM_VGPU_NONE) {
            out.push_back(w.given[r.argument]);
            continue;
        }
        IntArrayRef size(r.tensor.dim, (size_t)r.tensor.rank),
            stride(r.tensor.stride, (size_t)r.tensor.rank);
        if (r.shares != PLIM_VGPU_NONE) {
            Tensor t = at::native::as_strided_tensorimpl(out[r.shares], size, stride,
                                                         used[r.shares]);
            used[r.shares] += t.numel();
            out.push_back(t);
            continue;
        }
        caffe2::TypeMeta type = c10::scalarTypeToTypeMeta(type_of(r.tensor.dtype));
        c10::DataPtr data = r.block == PLIM_VGPU_NONE ? allocator.allocate(0)
                                                         : allocator.hold(r.block, r.addr);
        c10::Storage storage(c10::Storage::use_byte_size_t(), r.bytes, std::move(data),
                             &allocator, true);
        Tensor t =
            at::detail::make_tensor<c10::TensorImpl>(std::move(storage), kKeys, type);
        t.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
        used[i] = t.numel();
        out.push_back(t);
    }
    return out;
}

// Results in the order of the op's returns; a list takes what the others leave.
void give_made(const Call &c, const std::vector<Tensor> &made, Stack *stack)
{
    const auto &returns = c.schema.returns();
    size_t singles = 0, next = 0;
    for (const auto &r : returns)
        singles += r.type()->kind() == c10::TypeKind::TensorType;
    for (const auto &r : returns) {
        if (r.type()->kind() == c10::TypeKind::TensorType) {
            Tensor t = next < made.size() ? made[next] : Tensor();
            if (!t.defined() && r.name().compare(0, 6, "philox") == 0)
                t = at::empty({}, at::TensorOptions(ScalarType::Long)); // it stays on the CPU
            stack->push_back(t);
            next++;
        } else if (r.type()->kind() == c10::TypeKind::ListType) {
            size_t n = made.size() > singles ? made.size() - singles : 0;
            stack->push_back(std::vector<Tensor>(made.begin() + (int64_t)next,
                                                 made.begin() + (int64_t)(next + n)));
            next += n;
        } else { // the lengths of attention's sequences
            stack->push_back(c.tensor(r.name() == "max_q" ? "query" : "key").size(2));
        }
    }
}

// The name of an op's row among the kernels; nullptr: it has none.
const char *kernel_row(const std::string &name, bool *makes)
{
    static const std::unordered_map<std::string, std::pair<const char *, bool>> rows = [] {
        std::unordered_map<std::string, std::pair<const char *, bool>> all;
        bool made;
        for (uint32_t i = 0; const char *row = plim_vgpu_kernel_name(i, &made); i++)
            all[std::string("aten::") + row] = {row, made};
        return all;
    }();
    auto it = rows.find(name);
    if (it == rows.end())
        return nullptr;
    *makes = it->second.second;
    return it->second.first;
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
    bool makes = false;
    const char *row = kernel_row(name, &makes);
    check_devices(c, name);
    std::optional<Words> words; // of the arguments as they are now
    Results results;
    if (row)
        words.emplace(c);
    if (row && makes && words->ok) {
        run_kernel(row, *words, results);
        for (const char *statistic : {"running_mean", "running_var"})
            forget(c.tensor(statistic));
        give_made(c, tensors_of(results, *words), stack);
        return;
    }
    run_shapes(op, c, out, args);
    after_writes(c, args, keeps_contents(name));
    give(c, out, stack);
    if (row && words->ok)
        run_kernel(row, *words, results);
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

Tensor nonzero_of(const Tensor &t)
{
    Tensor known = recall(t);
    int64_t n = selected(t.numel());
    if (known.defined()) {
        n = known.count_nonzero().item<int64_t>();
    } else {
        note_selection("a mask on the card");
    }
    Results none;
    run_kernel("nonzero", Words("self", t), none);
    return strided({n, t.dim()}, {1, std::max<int64_t>(n, 1)}, ScalarType::Long);
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
        caveat("repeat_interleave is assumed to repeat each element once");
    }
    stack->push_back(contig({n}, ScalarType::Long));
}

void bincount(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("bincount");
    Call c(op, stack);
    Tensor w = c.tensor("weights");
    caveat("bincount is assumed to return minlength bins");
    stack->push_back(contig({std::max<int64_t>(c.integer("minlength"), 1)},
                            !w.defined() ? ScalarType::Long
                            : w.scalar_type() == ScalarType::Float ? ScalarType::Float
                                                                   : ScalarType::Double));
}

// A number where one mask is set: masked_fill, which takes nothing.
// src: TensorAdvancedIndexing.cpp canDispatchToMaskedFill
bool fills_mask(const Call &c)
{
    Tensor values = c.tensor("values");
    int masks = 0;
    if (!values.defined() || on(values) || values.numel() != 1 || c.flag("accumulate"))
        return false;
    for (const IValue &v : c.at("indices").toListRef()) {
        bool index = v.isTensor() && v.toTensor().scalar_type() != ScalarType::Bool &&
                     v.toTensor().scalar_type() != ScalarType::Byte;
        if (index)
            return false;
        masks += v.isTensor();
    }
    return masks == 1;
}

// Masks become indices and indices go to the card before the op itself.
// src: TensorAdvancedIndexing.cpp make_info, expandTensors
void indexed(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in(short_name(op));
    Call c(op, stack);
    Tensor self = c.tensor("self");
    if (fills_mask(c)) {
        forget(self);
        stack->push_back(self);
        return;
    }
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
        bool makes;
        Results none;
        forget(self);
        stack->push_back(self);
        if (const char *row = kernel_row(c10::toString(op.operator_name()), &makes))
            run_kernel(row, Words(c), none);
        return;
    }
    run_shapes(op, c, out, args);
    after_writes(c, args, false);
    give(c, out, stack);
}

// ---- rules: sparse tensors ------------------------------------------------------------------------------------

// Indices and values are tensors as any other; ops that only arrange those have one
// kernel for all devices, which a CPU build has as the CPU's.
void arrange(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in(short_name(op));
    TORCH_CHECK(op.hasKernelForDispatchKey(DispatchKey::SparseCPU), "this PyTorch has no '",
                short_name(op), "' of sparse tensors");
    op.callBoxedForDispatchKey(DispatchKey::SparseCPU, *stack);
}

Tensor sparse_of(const Tensor &indices, const Tensor &values, const Tensor &like,
                 bool coalesced)
{
    return at::_sparse_coo_tensor_unsafe(indices, values, like.sizes(),
                                         like.options().layout(at::kSparse), coalesced);
}

// How many rows are left is libplimsoll's guess.
Tensor coalesce(const Tensor &t)
{
    InOp in("coalesce");
    TORCH_CHECK(t.sparse_dim() == 1, "plimsoll: no rule for sparse tensors of ",
                t.sparse_dim(), " sparse dimensions: embeddings make them of 1");
    if (t._nnz() < 2)
        return sparse_of(t._indices().clone(), t._values().clone(), t, true);
    Words w(2);
    Results made;
    w.set(0, "values", t._values());
    w.set(1, "rows", t.size(0));
    caveat("coalesce is assumed to leave as many rows as uniformly drawn indices would");
    run_kernel("_coalesce", w, made);
    std::vector<Tensor> parts = tensors_of(made, w);
    return sparse_of(parts[0], parts[1], t, true);
}

Tensor sparse_sum(const Tensor &a, const Tensor &b)
{
    Tensor indices = at::cat({a._indices(), b._indices()}, 1);
    return sparse_of(indices, at::cat({a._values(), b._values()}), a, false);
}

void set_parts(const Tensor &t, const Tensor &indices, const Tensor &values)
{
    at::sparse::get_sparse_impl(t)->set_indices_and_values_unsafe(indices, values);
    t._coalesced_(false);
}

// To a dense tensor rows are added in place; two sparse ones are put one behind the other.
Tensor add_sparse(const Tensor &a, const Tensor &b, const at::Scalar &)
{
    InOp in("add");
    TORCH_CHECK(!a.is_sparse() || b.is_sparse(),
                "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
    return a.is_sparse() ? sparse_sum(a, b) : like(a);
}

Tensor &add_sparse_(Tensor &a, const Tensor &b, const at::Scalar &alpha)
{
    if (!a.is_sparse()) {
        forget(a);
        return a;
    }
    Tensor sum = add_sparse(a, b, alpha);
    set_parts(a, sum._indices(), sum._values());
    return a;
}

// By a number: into new parts.
Tensor &mul_sparse_(Tensor &t, const Tensor &number)
{
    InOp in("mul_");
    TORCH_CHECK(number.dim() == 0, "plimsoll: no rule for a sparse tensor times a tensor");
    Tensor indices = like(t._indices()), values = like(t._values());
    set_parts(t, indices, values);
    return t;
}

// dense's rows at mask's indices: picked, and multiplied by ones.
Tensor sparse_mask(const Tensor &dense, const Tensor &mask)
{
    InOp in("sparse_mask");
    TORCH_CHECK(!dense.is_sparse(), "plimsoll: no rule for sparse_mask of a sparse tensor");
    Tensor one = contig({}, dense.scalar_type()), picked = like(mask._values());
    Tensor indices = like(mask._indices()), values = like(mask._values());
    return sparse_of(indices, values, mask, mask.is_coalesced());
}

// ---- rules: attention -----------------------------------------------------------------------------------------

int64_t attention_backend(const Tensor &q, const Tensor &k, const Tensor &v,
                          const std::optional<Tensor> &mask, double dropout, bool causal,
                          std::optional<double>, bool gqa)
{
    auto &context = at::globalContext();
    const plim_vgpu_tensor query = geometry(q), key = geometry(k), value = geometry(v);
    plim_vgpu_attention_call call = {};
    call.mask = mask && mask->defined();
    call.causal = causal;
    call.mask_grad = call.mask && mask->requires_grad();
    call.gqa = gqa;
    call.dropout = dropout > 0;
    call.without =
        (context.userEnabledFlashSDP() ? 0u : 1u << PLIM_VGPU_SDPA_FLASH) |
        (context.userEnabledMemEfficientSDP() ? 0u : 1u << PLIM_VGPU_SDPA_EFFICIENT) |
        (context.userEnabledCuDNNSDP() ? 0u : 1u << PLIM_VGPU_SDPA_CUDNN);
    return plim_vgpu_attention(g.device, &query, &key, &value, &call);
}

// ---- rules: recurrent nets ----------------------------------------------------------------------------------------

int64_t rnn_weights(const std::vector<Tensor> &list)
{
    int64_t n = 0;
    for (const Tensor &t : list)
        n += t.numel();
    return n;
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

    RULE("_use_cudnn_ctc_loss", no);
    RULE("_use_cudnn_ctc_loss.Tensor", no);
    RULE("_use_miopen_ctc_loss", no);
    RULE("_use_miopen_ctc_loss.Tensor", no);
    RULE("_cudnn_rnn_flatten_weight", cudnn_rnn_flatten);
}

TORCH_LIBRARY_IMPL(aten, SparseCUDA, m)
{
    for (const char *name :
         {"_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors",
          "_indices", "_values", "_nnz", "is_coalesced", "_coalesced_", "sparse_dim",
          "dense_dim", "sparse_resize_and_clear_", "copy_sparse_to_sparse_",
          "resize_as_sparse_", "zero_", "clone", "neg", "neg.out", "linalg_vector_norm"})
        RULE(name, arrange);
    m.impl("_coalesce", TORCH_FN(coalesce));
    m.impl("add.Tensor", TORCH_FN(add_sparse));
    m.impl("add_.Tensor", TORCH_FN(add_sparse_));
    m.impl("mul_.Tensor", TORCH_FN(mul_sparse_));
    m.impl("sparse_mask", TORCH_FN(sparse_mask));
}

namespace at {
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", Hooks)
}

// ---- what front.py calls ---------------------------------------------------------------------------------------------

// Functional and in-place forms of structured ops come with a composite kernel that
// would allocate before the op is known, and some that a CUDA build has a kernel for
// with one that would be taken here: they go to the fallback too.
static void take_ops()
{
    static torch::Library lib(torch::Library::IMPL, "aten", DispatchKey::CUDA, __FILE__, __LINE__);
    auto &dispatcher = c10::Dispatcher::singleton();
    for (const auto &name : dispatcher.getAllOpNames()) {
        auto op = dispatcher.findOp(name);
        bool makes;
        if (name.name.compare(0, 6, "aten::") == 0 && op && op->hasSchema() &&
            !op->hasKernelForDispatchKey(DispatchKey::CUDA) &&
            (op->hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional) ||
             kernel_row(c10::toString(name), &makes)))
            lib.impl(c10::toString(name).c_str(),
                     torch::CppFunction::makeFromBoxedFunction<&fallback>());
    }
}

extern "C" {

// `skip`: path prefixes that are not the user's, one a line.
__attribute__((visibility("default"))) void plimsoll_shim_open(plim_vgpu *device, int torch,
                                                               double scalar, double mask_fraction,
                                                               const char *skip, const char *cwd)
{
    plim_vgpu_card card;
    plim_vgpu_card_get(device, &card);
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
    take_ops();
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
    plim_vgpu_label(g.device, block, (plim_category)category, name, nullptr);
}

// The number that the next node of autograd will have.
__attribute__((visibility("default"))) uint64_t plimsoll_shim_sequence()
{
    return at::sequence_number::peek();
}

__attribute__((visibility("default"))) int64_t plimsoll_shim_stream() { return current_stream; }
__attribute__((visibility("default"))) void plimsoll_shim_set_stream(int64_t id)
{
    current_stream = id;
}
}
