// refuse.h -- calls that PyTorch refuses are refused, in the words of its CUDA code.
//
// Meta kernels know most mistakes about shapes and few about dtypes; the CPU's kernels know
// all, in the words that CUDA's have.  They are asked twice:
//
//  - before an op runs, with a sample of at most two elements a dimension, once for each
//    combination of op, dtypes, ranks and numbers (check_call).  The sample says nothing
//    about sizes, so only what it says about dtypes, ranks and numbers counts (kAbout);
//  - after Meta has refused, with the sizes as they are, for the words (run_on_cpu).
//
// To add words of CUDA's own, types that its kernels lack and the CPU's have, or a check of sizes
// that Meta lacks: a row below.
#pragma once
#include <ATen/ops/ones.h>

#include "shapes.h"

namespace {

// ---- words ---------------------------------------------------------------------------

struct Wording {
    const char *cpu, *cuda;
};

// The first row that fits changes the words; the names of kernels first.
// src: PyTorch 2.13, ATen/native/cuda/{SoftMax,Loss,NLLLoss2d,ActivationGelu,Distribution*}
const Wording kWords[] = {
    {"\"softmax_lastdim_kernel_impl\"", "\"host_softmax\""},
    {"\"softmax_kernel_impl\"", "\"host_softmax\""},
    {"\"log_softmax_lastdim_kernel_impl\"", "\"host_softmax\""},
    {"\"log_softmax_kernel_impl\"", "\"host_softmax\""},
    {"\"nll_loss_out_frame\"", "\"nll_loss_forward_reduce_cuda_kernel_2d\""},
    {"\"GeluKernelImpl\"", "\"GeluCUDAKernelImpl\""},
    {"\"log_sigmoid_cpu\"", "\"log_sigmoid_forward_cuda\""},
    {"\"normal_kernel_cpu\"", "\"normal_kernel_cuda\""},
    {"_vml_cpu\"", "_cuda\""},
    {"_cpu\"", "_cuda\""},
    {"_cpu_\"", "_cuda_\""},
    {"expected m1 and m2 to have", "expected mat1 and mat2 to have"},
    {"torch.FloatTensor", "torch.cuda.FloatTensor"},
    {"torch.DoubleTensor", "torch.cuda.DoubleTensor"},
    {"torch.HalfTensor", "torch.cuda.HalfTensor"},
    {"torch.LongTensor", "torch.cuda.LongTensor"},
    {"torch.IntTensor", "torch.cuda.IntTensor"},
    {"got CPU", "got CUDA"},
};

std::string cuda_words(std::string text)
{
    for (const Wording &w : kWords) {
        size_t at = text.find(w.cpu);
        if (at == std::string::npos)
            continue;
        text.replace(at, strlen(w.cpu), w.cuda);
        break;
    }
    return text;
}

[[noreturn]] void refuse(const c10::Error &e)
{
    std::string text = cuda_words(e.what_without_backtrace());
    bool missing = text.find("\" not implemented for '") != std::string::npos;
    TORCH_CHECK_INDEX(!dynamic_cast<const c10::IndexError *>(&e), text);
    TORCH_CHECK_TYPE(!dynamic_cast<const c10::TypeError *>(&e), text);
    TORCH_CHECK_VALUE(!dynamic_cast<const c10::ValueError *>(&e), text);
    TORCH_CHECK_NOT_IMPLEMENTED(
        !missing && !dynamic_cast<const c10::NotImplementedError *>(&e), text);
    TORCH_CHECK(false, text);
    abort(); // not reached
}

// ---- types that CUDA's kernels lack -----------------------------------------------------

struct Lacks {
    const char *op, *argument, *kernel;
};

// These kernels are for floating and complex types; the CPU's are for integers too.
// src: PyTorch 2.13, ATen/native/cuda/{Blas,AveragePool2d,DilatedMaxPool2d}
const Lacks kNoIntegers[] = {
    {"mm", "self", "addmm_cuda"},
    {"addmm", "self", "addmm_cuda"},
    {"addmm_", "self", "addmm_cuda"},
    {"bmm", "self", "baddbmm_cuda"},
    {"baddbmm", "self", "baddbmm_cuda"},
    {"baddbmm_", "self", "baddbmm_cuda"},
    {"mv", "self", "addmv_impl_cuda"},
    {"addmv", "self", "addmv_impl_cuda"},
    {"dot", "self", "dot"},
    {"avg_pool2d", "self", "avg_pool2d_out_cuda_frame"},
    {"max_pool2d_with_indices", "self", "max_pool2d_with_indices_out_cuda_frame"},
};

void check_lacking(const c10::OperatorHandle &op, c10::ArrayRef<IValue> in)
{
    static const std::unordered_map<std::string, const Lacks *> rows = [] {
        std::unordered_map<std::string, const Lacks *> all;
        for (const Lacks &row : kNoIntegers)
            all[std::string("aten::") + row.op] = &row;
        return all;
    }();
    auto it = rows.find(op.operator_name().name);
    if (it == rows.end())
        return;
    for (size_t i = 0; i < in.size(); i++)
        if (op.schema().arguments()[i].name() == it->second->argument && in[i].isTensor()) {
            ScalarType t = in[i].toTensor().scalar_type();
            TORCH_CHECK_NOT_IMPLEMENTED(
                !at::isIntegralType(t, true) || !in[i].toTensor().numel(), '"',
                it->second->kernel, "\" not implemented for '", c10::toString(t), "'");
        }
}

// ---- sizes that Meta does not look at ------------------------------------------------------

void multinomial_sizes(const Call &c)
{
    int64_t n = c.integer("num_samples");
    TORCH_CHECK(n > 0, "cannot sample n_sample <= 0 samples");
    TORCH_CHECK(c.flag("replacement") || !c.tensor("self").dim() ||
                    n <= c.tensor("self").size(-1),
                "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
}

void nll_loss2d_sizes(const Call &c)
{
    Tensor x = c.tensor("self"), target = c.tensor("target");
    TORCH_CHECK(
        x.dim() != 4 || target.dim() != 3 ||
            (x.size(0) == target.size(0) && x.sizes().slice(2) == target.sizes().slice(1)),
        "input and target batch or spatial sizes don't match: target ", target.sizes(),
        ", input ", x.sizes());
}

void put_sizes(const Call &c)
{
    int64_t n = c.tensor("source").numel(), places = c.tensor("index").numel();
    TORCH_CHECK_INDEX(n == places,
                      "put_(): Expected source and index to have the same number of "
                      "elements, but got source.numel() = ",
                      n, ", index.numel() = ", places);
}

// src: PyTorch 2.13, ATen/native/{Distributions,TensorAdvancedIndexing}.cpp, cuda/NLLLoss2d.cu
const std::unordered_map<std::string, void (*)(const Call &)> kSizes = {
    {"aten::multinomial", multinomial_sizes},
    {"aten::nll_loss2d_forward", nll_loss2d_sizes},
    {"aten::put_", put_sizes},
};

// ---- a sample on the CPU -------------------------------------------------------------------

constexpr int64_t kSample = 2;     // elements of a dimension, entries of a list of tensors
constexpr int64_t kMostOfList = 8; // of a list of numbers: a size; dimensions are fewer

// What a refusal of the sample is about, if it counts.
const char *const kAbout[] = {
    "not implemented for",
    "dtype",
    "scalar type",
    "data type",
    "be cast",
    "complex",
    "bool",
    "Bool",
    "integral",
    "Integers",
    "floating",
    "out of range (expected",
    "is supposed to be",
    "1 dim",
    "numel() == 0",
    "non-zero size",
    "only works on",
    "negative value",
    "non-positive",
    "expects lambda",
    "expects p ",
    "expects std",
    "expects sigma",
    "expects 'from'",
    "expects to return",
};

// What CUDA's kernels have and the CPU's may lack.
const char *const kCudaHas[] = {"'Half'", "'BFloat16'",  "'ComplexHalf'", "'Float8",
                                "'UInt",  "\"abs_cpu\"", "\"trace\"",     "nansum on CPU"};

bool counts(const std::string &why)
{
    bool about = false;
    for (const char *word : kAbout)
        about = about || why.find(word) != std::string::npos;
    for (const char *word : kCudaHas)
        about = about && why.find(word) == std::string::npos;
    return about && why.compare(0, 13, "Could not run") != 0;
}

// Mixed words of op, types and numbers; of a number only what a range may ask for.
struct Key {
    uint64_t h = 1469598103934665603u;
    double before = 0;
    bool sizes; // all of a tensor's, and of a list's tensors

    Key(const c10::OperatorHandle &op, c10::ArrayRef<IValue> in, bool all) : sizes(all)
    {
        add((uint64_t)(uintptr_t)&op.operator_name() + sizes);
        for (const IValue &v : in)
            value(v);
    }
    void add(uint64_t x) { h = (h ^ x) * 1099511628211u, h ^= h >> 29; }
    void number(double x)
    {
        add((uint64_t)(x < 0) | (uint64_t)(x == 0) << 1 | (uint64_t)(x > 1) << 2 |
            (uint64_t)(x < before) << 3 | (uint64_t)(x == before) << 4);
        before = x;
    }
    void tensor(const Tensor &t)
    {
        if (!t.defined())
            return add(99);
        add((uint64_t)t.scalar_type() << 8 | (uint64_t)t.dim());
        for (int64_t n : t.sizes())
            add((uint64_t)(sizes ? n : std::min(n, kSample)));
    }
    bool whole(const IValue &element) { return sizes || !element.isTensor(); }
    void value(const IValue &v)
    {
        if (v.isTensor())
            tensor(v.toTensor());
        else if (v.isDouble())
            number(v.toDouble());
        else if (v.isBool())
            add(v.toBool());
        else if (v.isInt() && std::abs(v.toInt()) <= 16)
            add((uint64_t)v.toInt() + 1000);
        else if (v.isInt())
            number((double)v.toInt());
        else if (v.isList()) {
            auto list = v.toListRef();
            size_t n = list.size();
            if (n > (size_t)kSample && !whole(list[0]))
                n = (size_t)kSample;
            add(n);
            for (size_t i = 0; i < n; i++)
                value(list[i]);
        } else
            add(v.isNone() ? 7 : 8);
    }
};

Tensor sample(const Tensor &t)
{
    if (!t.defined() || t.is_meta() || (!on(t) && !t.dim()))
        return t;
    IntList size = t.sizes().vec();
    for (int64_t &n : size)
        n = std::min(n, kSample);
    at::TensorOptions options(t.scalar_type());
    // probabilities that have a sum, indices that exist
    bool number = at::isFloatingType(t.scalar_type()) || at::isComplexType(t.scalar_type());
    Tensor s = number ? at::ones(size, options) : at::zeros(size, options);
    if (t.unsafeGetTensorImpl()->is_wrapped_number())
        s.unsafeGetTensorImpl()->set_wrapped_number(true);
    return s;
}

IValue sample_of(const IValue &v)
{
    if (v.isList() && !v.toListRef().empty()) {
        auto list = v.toListRef();
        if (list[0].isInt() || list[0].isSymInt()) {
            std::vector<int64_t> few;
            for (const IValue &e : list)
                few.push_back(
                    std::min(e.isInt() ? e.toInt() : e.toSymInt().expect_int(), kMostOfList));
            return few;
        }
        if (v.isTensorList()) {
            std::vector<Tensor> few;
            for (size_t i = 0; i < list.size() && i < (size_t)kSample; i++)
                few.push_back(sample(list[i].toTensor()));
            return few;
        }
        if (v.isDoubleList()) {
            auto few = v.toDoubleVector();
            few.resize(std::min<size_t>(few.size(), kSample));
            return few;
        }
    }
    return convert(v, sample, Device(c10::kCPU));
}

// Whether an op's kernels on the CPU say what CUDA's would: PyTorch's own, that look at
// tensors and make new ones or write into them.
bool cpu_speaks_for(const c10::OperatorHandle &op)
{
    const std::string &name = op.operator_name().name;
    for (const char *other :
         {"aten::_scaled", "aten::_weight", "aten::_int_mm", "aten::_grouped", "aten::_fused",
          "aten::_convert", "aten::histc", "aten::_cudnn", "aten::_sparse", "aten::_nested",
          "aten::_flash", "aten::_efficient", "aten::_transformer", "aten::quantize",
          "aten::record_stream", "aten::set_",
          "aten::_ctc_loss", // reads as far as its lists of lengths say, beyond a sample
          // of fp16 into fp32 in one kernel, which the CPU does not have
          "aten::_softmax_backward", "aten::_log_softmax_backward"})
        if (name.compare(0, strlen(other), other) == 0)
            return false;
    bool takes = false;
    for (const auto &a : op.schema().arguments())
        takes |= !a.is_out() && a.type()->kind() != c10::TypeKind::DeviceObjType &&
                 (a.type()->isSubtypeOf(*c10::TensorType::get()) ||
                  a.type()->kind() == c10::TypeKind::OptionalType ||
                  a.type()->kind() == c10::TypeKind::ListType);
    for (const auto &r : op.schema().returns())
        takes &= !r.alias_info() || r.alias_info()->isWrite(); // Meta knows views
    return takes && name.compare(0, 6, "aten::") == 0;
}

struct KeptRandomState { // of the CPU, put back at the end
    at::Generator usual = at::detail::getDefaultCPUGenerator();
    Tensor state = usual.get_state();
    ~KeptRandomState() { usual.set_state(state); }
};

// Runs it where its random numbers are missed by nobody.
void call_aside(const c10::OperatorHandle &op, Stack *stack)
{
    at::AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    std::optional<KeptRandomState> kept;
    if (op.hasTag(at::Tag::nondeterministic_seeded))
        kept.emplace();
    op.callBoxed(stack);
}

// Combinations that were not refused.
struct Fine {
    std::unordered_set<uint64_t> keys;

    bool has(uint64_t key)
    {
        std::lock_guard<std::mutex> lock(g.mu);
        return keys.count(key);
    }
    void add(uint64_t key)
    {
        std::lock_guard<std::mutex> lock(g.mu);
        if (keys.size() > 1 << 16)
            keys.clear();
        keys.insert(key);
    }
} fine;

void check_sample(const c10::OperatorHandle &op, c10::ArrayRef<IValue> in)
{
    Stack stack;
    for (const IValue &v : in)
        stack.push_back(sample_of(v));
    try {
        call_aside(op, &stack);
    } catch (const c10::Error &e) {
        if (counts(e.what_without_backtrace()))
            refuse(e);
    } catch (const std::exception &e) { // of a Python kernel: nothing is known
        if (ends_script(e.what()))
            throw;
    }
}

// Refuses what a CUDA build would refuse for the types, ranks or numbers of its arguments.
void check_call(const c10::OperatorHandle &op, c10::ArrayRef<IValue> in)
{
    Key key(op, in, false);
    if (fine.has(key.h))
        return;
    if (cpu_speaks_for(op))
        check_sample(op, in);
    check_lacking(op, in);
    fine.add(key.h);
}

void check_call(const c10::OperatorHandle &op, const Call &c)
{
    check_call(op, c10::ArrayRef<IValue>(c.in));
    auto it = kSizes.find(op.operator_name().name);
    if (it != kSizes.end())
        it->second(c);
}

// ---- the whole on the CPU ------------------------------------------------------------------

bool run_on_cpu(const c10::OperatorHandle &op, const Call &c, Stack &out,
                std::vector<IValue> &args)
{
    if (total_bytes(c) > kMostOnCpu)
        return false;
    out.clear();
    args.clear();
    for (const IValue &v : c.in) {
        args.push_back(convert(v, as_cpu, Device(c10::kCPU)));
        out.push_back(args.back());
    }
    try {
        call_aside(op, &out);
        return true;
    } catch (const c10::NotImplementedError &e) {
        if (counts(e.what_without_backtrace()))
            refuse(e);
    } catch (const c10::Error &e) {
        refuse(e);
    } catch (const std::exception &e) {
        if (ends_script(e.what()))
            throw;
    }
    return false;
}

// For an op whose results libplimsoll makes: the sizes are looked at by Meta.
void check_sizes(const c10::OperatorHandle &op, const Call &c)
{
    Key key(op, c.in, true);
    if (fine.has(key.h))
        return;
    Stack out;
    std::vector<IValue> args;
    std::string why;
    run_on_meta(op, c, out, args, why);
    fine.add(key.h);
}

} // namespace
