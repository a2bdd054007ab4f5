// rules_sparse.h -- rules: sparse tensors.
#pragma once
#include "fallback.h"

namespace {

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

} // namespace

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
