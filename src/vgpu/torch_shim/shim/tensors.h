// tensors.h -- tensors on the pretend GPU.
#pragma once
#include "labels.h"

namespace {

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
    replace_memory(*store, need);
}

} // namespace
