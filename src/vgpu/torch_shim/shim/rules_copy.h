// rules_copy.h -- rules: making, viewing, copying.
#pragma once
#include "fallback.h"
#include "reads.h"

namespace {

using Type = std::optional<ScalarType>;
using Where = std::optional<Device>;

Tensor empty_format(IntArrayRef size, Type t, std::optional<at::Layout>, Where d,
                    std::optional<bool>, std::optional<at::MemoryFormat> f)
{
    OnDevice there(d);
    ScalarType type = c10::dtype_or_default(t);
    pending(size, type);
    return at::detail::empty_generic(size, &allocator, kKeys, type, f);
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, Type t, std::optional<at::Layout>,
                     Where d, std::optional<bool>)
{
    OnDevice there(d);
    return strided(size, stride, c10::dtype_or_default(t));
}

// Its kernel is found by device and not by the dispatcher.  src: TensorFactories.cpp
void kaiser_window(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("kaiser_window");
    Call c(op, stack);
    OnDevice there(c.at("device").isDevice() ? Where(c.at("device").toDevice())
                                             : std::nullopt);
    int64_t n = c.integer("window_length"), periodic = c.flag("periodic", true) && n > 1;
    Type given = c.at("dtype").isInt() ? Type(c.at("dtype").toScalarType()) : std::nullopt;
    ScalarType type = c10::dtype_or_default(given);
    Tensor places = contig({n + periodic}, type), window = contig({n + periodic}, type);
    stack->push_back(at::native::as_strided_tensorimpl(window, {n}, {1}, 0));
}

Tensor as_strided(const Tensor &t, IntArrayRef size, IntArrayRef stride,
                  std::optional<int64_t> offset)
{
    return at::native::as_strided_tensorimpl(t, size, stride, offset);
}

const Tensor &resize_(const Tensor &t, IntArrayRef size, std::optional<at::MemoryFormat> f)
{
    InOp in("resize_");
    OnDevice there(t.device());
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
    c10::Storage none(c10::Storage::use_byte_size_t(), 0, allocator.allocate(0), &allocator,
                      true);
    t.unsafeGetTensorImpl()->set_storage_keep_dtype(none);
    t.unsafeGetTensorImpl()->set_storage_offset(0);
    t.unsafeGetTensorImpl()->set_sizes_and_strides(IntList{0}, IntList{1});
    stack->push_back(t);
}

bool same_layout(const Tensor &a, const Tensor &b)
{
    return a.sizes() == b.sizes() &&
           ((a.is_contiguous() && b.is_contiguous()) ||
            (a.strides() == b.strides() && a.is_non_overlapping_and_dense()));
}

// From one card to another that cannot read it: what is sent is contiguous, of one type.
std::vector<Tensor> copy_across(const Tensor &dst, const Tensor &src, bool non_blocking)
{
    ScalarType sent = non_blocking ? dst.scalar_type() : src.scalar_type();
    std::vector<Tensor> out;
    if (!dst.is_contiguous() || dst.scalar_type() != sent) {
        OnDevice there(dst.device());
        out.push_back(contig(dst.sizes(), sent));
    }
    OnDevice there(src.device());
    if (src.scalar_type() != sent)
        out.push_back(like(src, sent));
    if (!src.is_contiguous() || src.sizes() != dst.sizes())
        out.push_back(contig(dst.sizes(), sent));
    return out;
}

// src: cuda/Copy.cu copy_requires_temporaries and copy_kernel_cuda
std::vector<Tensor> copy_temporaries(const Tensor &dst, const Tensor &src, bool non_blocking)
{
    if (dst.device() == src.device() ||
        (dst.scalar_type() == src.scalar_type() && same_layout(dst, src)))
        return {};
    if (on(dst) && on(src))
        return g.peers ? std::vector<Tensor>() : copy_across(dst, src, non_blocking);
    if (on(dst) && !dst.is_contiguous())
        return {like(dst)};
    if (on(src) && !src.is_contiguous())
        return {contig(src.sizes(), src.scalar_type())};
    return {};
}

void copy_(const c10::OperatorHandle &op, Stack *stack)
{
    Call c(op, stack);
    Tensor dst = c.tensor("self"), src = c.tensor("src");
    stack->push_back(dst);
    if (!dst.numel() || dst.is_same(src))
        return;
    InOp in("copy_");
    bool non_blocking = c.flag("non_blocking");
    OnDevice there((on(dst) ? dst : src).device());
    at::infer_size(dst.sizes(), src.sizes());
    std::vector<Tensor> temporaries = copy_temporaries(dst, src, non_blocking);
    if (!on(dst)) {
        at::AutoDispatchBelowADInplaceOrView below;
        dst.copy_(read(src, "a copy to the host"));
        return;
    }
    if (!on(src) && whole(dst)) {
        forget(dst);
        remember(dst, src.expand(dst.sizes()));
        return;
    }
    Answer answer(op, c);
    forget(dst);
    answer.settle(c, *stack);
}

at::Scalar local_scalar(const Tensor &t)
{
    InOp in("item");
    return read(t, reader ? reader : "item()").item();
}

// bool(t), if t: a read that decides a branch.
bool is_nonzero(const Tensor &t)
{
    const char *before = std::exchange(reader, "bool(), which decides a branch,");
    try {
        bool is = at::native::is_nonzero(t);
        reader = before;
        return is;
    } catch (...) {
        reader = before;
        throw;
    }
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
        same = g.scalar < 0 || g.scalar == 1;
        note_read("equal()", at::scalar_tensor(same, at::TensorOptions(ScalarType::Bool)),
                  GUESSED);
    }
    stack->push_back(same);
}

void fill_(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("fill_");
    Call c(op, stack);
    Tensor t = c.tensor("self");
    const IValue &v = c.at("value");
    stack->push_back(t);
    if (whole(t)) {
        record(t, uniform(t.scalar_type(), v.isScalar() ? v.toScalar() : 0, KNOWN));
        return;
    }
    Answer answer(op, c);
    forget(t);
    answer.settle(c, *stack);
}

void record_stream(const c10::OperatorHandle &op, Stack *stack)
{
    Call c(op, stack);
    guard.recordDataPtrOnStream(c.tensor("self").storage().data_ptr(), c.at("s").toStream());
}

} // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, m)
{
    m.impl("empty.memory_format", TORCH_FN(empty_format));
    m.impl("empty_strided", TORCH_FN(empty_strided));
    m.impl("as_strided", TORCH_FN(as_strided));
    m.impl("view", TORCH_FN(at::native::view));
    m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
    m.impl("resize_", TORCH_FN(resize_));
    RULE("copy_", copy_);
    m.impl("_local_scalar_dense", TORCH_FN(local_scalar));
    m.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
    RULE("set_.source_Storage_storage_offset", set_storage);
    RULE("set_.source_Storage", set_storage);
    RULE("set_", set_empty);
    RULE("kaiser_window", kaiser_window);
    RULE("kaiser_window.periodic", kaiser_window);
    RULE("kaiser_window.beta", kaiser_window);
    RULE("equal", equal);
    RULE("fill_.Scalar", fill_);
    RULE("zero_", fill_);
    RULE("record_stream", record_stream);
    RULE("_use_cudnn_ctc_loss", no);
    RULE("_use_cudnn_ctc_loss.Tensor", no);
    RULE("_use_miopen_ctc_loss", no);
    RULE("_use_miopen_ctc_loss.Tensor", no);
}

// On top of what a subclass of Tensor does with the read: a DTensor knows item(), not this.
TORCH_LIBRARY_IMPL(aten, AutogradCUDA, m) { m.impl("is_nonzero", TORCH_FN(is_nonzero)); }
