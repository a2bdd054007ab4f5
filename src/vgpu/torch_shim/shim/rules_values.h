// rules_values.h -- rules: sizes that depend on values.
#pragma once
#include "fallback.h"
#include "indices.h"

namespace {

void note_selection(const char *what)
{
    char text[96];
    snprintf(text, sizeof text, "%s selects %g of what it could", what, g.mask_fraction);
    caveat(text);
}

// The elements that a mask sets: counted if they are known, else --mask-fraction of them.
// A mask that selects is from then on what it was taken for.
int64_t count_of(const Tensor &mask, IntArrayRef size, const char *what)
{
    bool open = mask.numel() && !recorded(mask);
    if (open && mask.scalar_type() == ScalarType::Bool)
        if (ValueRef v = guessed(mask))
            record(mask, std::move(v));
    Tensor known = recall(mask, ROUTED);
    if (open || (mask.numel() && !known.defined()))
        note_selection(what);
    else if (known.defined() && recorded(mask)->trust == ROUTED)
        caveat(std::string(what) + " selects as a router might choose (--routing)");
    return known.defined() ? known.expand(size).count_nonzero().item<int64_t>()
                           : selected(c10::multiply_integers(size));
}

Tensor nonzero_of(const Tensor &t)
{
    int64_t n = count_of(t, t.sizes(), "a mask on the card");
    Results none;
    run_kernel("nonzero", Words("self", t), none);
    return strided({n, t.dim()}, {1, std::max<int64_t>(n, 1)}, ScalarType::Long);
}

void nonzero(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("nonzero");
    Call c(op, stack);
    Tensor places = nonzero_of(c.tensor("self"));
    Answer answer(op, c);
    stack->push_back(places);
    answer.settle(c, *stack);
}

void masked_select(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("masked_select");
    Call c(op, stack);
    Tensor x = c.tensor("self"), mask = c.tensor("mask");
    std::vector<int64_t> size = at::infer_size(mask.sizes(), x.sizes());
    Tensor places = contig({c10::multiply_integers(size)}, ScalarType::Long);
    int64_t n = count_of(mask, size, "masked_select");
    Answer answer(op, c);
    stack->push_back(contig({n}, x.scalar_type()));
    answer.settle(c, *stack);
}

// What the op makes on the CPU, if its tensors are known; else an empty stack.
Stack on_cpu(const c10::OperatorHandle &op, const Call &c)
{
    Stack out;
    bool all = true;
    for (const IValue &v : c.in)
        out.push_back(convert(
            v,
            [&](const Tensor &t) {
                Tensor known = on(t) ? recall(t, ROUTED) : t;
                all = all && known.defined() == t.defined();
                return known;
            },
            Device(c10::kCPU)));
    if (!all)
        return {};
    at::AutoDispatchBelowADInplaceOrView below;
    op.callBoxed(&out);
    return out;
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
    Stack known = on_cpu(op, c);
    if (!known.empty())
        k = known[0].toTensor().size(d);
    else
        note_selection("unique");
    Answer answer(op, c);
    IntList size = by_dim ? x.sizes().vec() : IntList{k};
    if (by_dim)
        size[d] = k;
    Tensor sorted = contig({n}, x.scalar_type()); // what the sort works on
    stack->push_back(contig(size, x.scalar_type()));
    bool inverse = c.flag("return_inverse");
    stack->push_back(contig(inverse ? (by_dim ? IntList{n} : x.sizes().vec()) : IntList{0},
                            ScalarType::Long));
    stack->push_back(contig({c.flag("return_counts") ? k : 0}, ScalarType::Long));
    answer.settle(c, *stack);
}

void repeat_interleave(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("repeat_interleave");
    Call c(op, stack);
    Tensor x = c.tensor("repeats");
    Answer answer(op, c);
    int64_t n = c.integer("output_size", -1);
    Tensor known = recall(x, ROUTED);
    if (n < 0 && known.defined())
        n = known.sum().item<int64_t>();
    if (n < 0) {
        n = x.numel();
        caveat("repeat_interleave is assumed to repeat each element once");
    }
    stack->push_back(contig({n}, ScalarType::Long));
    answer.settle(c, *stack);
}

void bincount(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("bincount");
    Call c(op, stack);
    Tensor x = c.tensor("self"), w = c.tensor("weights"), known = recall(x, ROUTED);
    Answer answer(op, c);
    int64_t n = c.integer("minlength");
    if (known.defined())
        n = std::max(n, known.max().item().toLong() + 1);
    else if (x.numel())
        caveat("bincount is assumed to return minlength bins");
    stack->push_back(contig({known.defined() ? n : std::max<int64_t>(n, 1)},
                            !w.defined()                           ? ScalarType::Long
                            : w.scalar_type() == ScalarType::Float ? ScalarType::Float
                                                                   : ScalarType::Double));
    answer.settle(c, *stack);
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

// A mask has the sizes of the dimensions that it selects from.
void check_mask(const Tensor &self, const Tensor &mask, int64_t first)
{
    for (int64_t d = 0; d < mask.dim(); d++)
        TORCH_CHECK_INDEX(first + d < self.dim() && mask.size(d) == self.size(first + d),
                          "The shape of the mask ", mask.sizes(), " at index ", d,
                          " does not match the shape of the indexed tensor ", self.sizes(),
                          " at index ", first + d);
}

// Masks become indices and indices go to the card before the op itself.
// src: TensorAdvancedIndexing.cpp make_info, expandTensors
void indexed(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in(short_name(op));
    Call c(op, stack);
    Tensor self = c.tensor("self");
    Answer answer(op, c);
    std::vector<IValue> given = c.in; // what the answer is to, with masks as they were
    auto settle = [&] {
        c.in = given;
        answer.settle(c, *stack);
    };
    if (fills_mask(c)) {
        forget(self);
        stack->push_back(self);
        settle();
        return;
    }
    std::vector<std::optional<Tensor>> plain;
    for (IValue v : c.at("indices").toList()) {
        Tensor t = v.isTensor() ? v.toTensor() : Tensor();
        TORCH_CHECK(!on(t) || !on(self) || t.device() == self.device(),
                    "indices should be either on cpu or on the same device as the indexed "
                    "tensor (",
                    self.device(), ")");
        if (!t.defined()) {
            plain.push_back(std::nullopt);
        } else if (t.scalar_type() == ScalarType::Bool ||
                   t.scalar_type() == ScalarType::Byte) {
            check_mask(self, t, (int64_t)plain.size());
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
    std::vector<Tensor> copies = index_copies(c, plain);
    Stack out;
    std::vector<IValue> args;
    if (only_writes(c)) { // the values may be as many as a guessed mask selects
        bool makes;
        Results none;
        forget(self);
        stack->push_back(self);
        if (const char *row = kernel_row(c10::toString(op.operator_name()), &makes))
            run_kernel(row, Words(c), none);
        settle();
        return;
    }
    run_shapes(op, c, out, args);
    after_writes(op, c, args, false);
    give(c, out, stack);
    settle();
}

} // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, m)
{
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
}
