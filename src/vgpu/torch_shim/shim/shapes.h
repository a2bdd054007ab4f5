// shapes.h -- the results of any op, by its Meta kernel.
#pragma once
#include "values.h"

namespace {

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
    Tensor c = recall(t, GUESSED);
    return c.defined()
               ? c
               : at::empty_strided(t.sizes(), t.strides(), at::TensorOptions(t.scalar_type()))
                     .zero_();
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
            out.push_back(e.isTensor() ? std::optional<Tensor>(f(e.toTensor()))
                                       : std::nullopt);
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
    static const std::unordered_set<std::string> names = {"aten::index.Tensor",
                                                          "aten::index_put_",
                                                          "aten::_index_put_impl_",
                                                          "aten::index_put",
                                                          "aten::_unsafe_index.Tensor",
                                                          "aten::_unsafe_index_put",
                                                          "aten::where.self",
                                                          "aten::copy_",
                                                          "aten::_copy_from",
                                                          "aten::set_.source_Tensor",
                                                          "aten::_use_cudnn_ctc_loss.Tensor",
                                                          "aten::_ctc_loss.Tensor",
                                                          "aten::_cudnn_ctc_loss.Tensor"};
    return names.count(name) > 0;
}

void check_devices(const Call &c, const std::string &name)
{
    std::optional<Device> card, other; // other: the CPU, or another card
    bool cpu = false;
    auto see = [&](const Tensor &t) {
        if (!t.defined())
            return;
        cpu |= t.device().is_cpu() && t.dim() > 0;
        if (t.is_cuda() && card && t.device() != *card)
            other = t.device();
        else if (t.is_cuda())
            card = t.device();
    };
    auto verdict = [&] {
        TORCH_CHECK(!card || (!other && (!cpu || mixes_devices(name))),
                    "Expected all tensors to be on the same device, but found at least two "
                    "devices, ",
                    card.value_or(c10::kCUDA), " and ", other.value_or(c10::kCPU),
                    "! (when checking arguments of ", name, ")");
    };
    bool each = name.compare(0, 14, "aten::_foreach") == 0; // the i-th of all lists
    size_t longest = 0;
    for (const IValue &v : c.in) {
        if (v.isTensor())
            see(v.toTensor());
        else if (v.isTensorList() && each)
            longest = std::max(longest, v.toTensorVector().size());
        else if (v.isTensorList())
            for (const Tensor &t : v.toTensorVector())
                see(t);
    }
    if (!each)
        return verdict();
    for (size_t i = 0; i < longest; i++) {
        card = other = std::nullopt;
        cpu = false;
        for (const IValue &v : c.in)
            if (v.isTensorList() && i < v.toTensorVector().size())
                see(v.toTensorVector()[i]);
        verdict();
    }
}

uint64_t total_bytes(const Call &c)
{
    uint64_t n = 0;
    for (const IValue &v : c.in)
        if (v.isTensor() && on(v.toTensor()))
            n += v.toTensor().nbytes();
    return n;
}

bool only_writes(const Call &c) // every result is an argument, which keeps its size
{
    bool any = false;
    for (const auto &a : c.schema.arguments()) {
        any |= writes(a.alias_info());
        if (a.is_out())
            return false;
    }
    for (const auto &r : c.schema.returns())
        any &= writes(r.alias_info());
    return any;
}

// It fills one tensor with random numbers.  Meta's `normal_` is Python, and imports torch._dynamo,
// which fails if the script has changed torch.Tensor by then (DeepSpeed's zero.Init).
bool only_draws(const Call &c)
{
    bool generator = false;
    for (size_t i = 0; i < c.in.size(); i++) {
        const auto &a = c.schema.arguments()[i];
        generator |= a.name() == "generator";
        if (c.in[i].isTensor() != (i == 0) || writes(a.alias_info()) != (i == 0))
            return false;
    }
    return generator && only_writes(c);
}

// A Meta kernel in Python may be what a signal interrupts.
bool ends_script(const std::string &error)
{
    for (const char *name : {"KeyboardInterrupt", "Stopped", "SystemExit"})
        if (error.compare(0, strlen(name), name) == 0)
            return true;
    return false;
}

constexpr uint64_t kMostOnCpu = 256u << 20; // bytes of arguments

// The same on the CPU, in whose words it may be refused; false: the CPU cannot say.  refuse.h
bool run_on_cpu(const c10::OperatorHandle &op, const Call &c, Stack &out,
                std::vector<IValue> &args);

// What the op makes of these shapes; `args` are the converted arguments after it.  False:
// Meta cannot say, for the reason in `why`.
bool run_on_meta(const c10::OperatorHandle &op, const Call &c, Stack &out,
                 std::vector<IValue> &args, std::string &why)
{
    at::AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    out.clear();
    args.clear();
    for (const IValue &v : c.in) {
        args.push_back(convert(v, as_meta, Device(c10::kMeta)));
        out.push_back(args.back());
    }
    try {
        op.callBoxed(&out);
        return true;
    } catch (const c10::NotImplementedError &e) {
        why = e.what_without_backtrace();
        return false;
    } catch (const c10::Error &) { // the user's mistake, as on a GPU
        if (run_on_cpu(op, c, out, args))
            return true;
        throw;
    } catch (const std::exception &e) { // the user's mistake, or a Python kernel's own
        why = e.what();
        if (ends_script(why))
            throw;
        return run_on_cpu(op, c, out, args);
    }
}

// As Meta, or else the CPU, says.
void run_shapes(const c10::OperatorHandle &op, const Call &c, Stack &out,
                std::vector<IValue> &args)
{
    std::string why, name = c10::toString(op.operator_name());
    if (!only_draws(c) && run_on_meta(op, c, out, args, why))
        return;
    if (only_writes(c)) {
        out.clear();
        args = c.in;
        for (size_t i = 0; i < c.schema.returns().size(); i++)
            out.push_back(IValue()); // replaced by the argument itself
        return;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(total_bytes(c) <= kMostOnCpu, "plimsoll: '", name,
                                "' has no shape rule yet (", why, ")");
    caveat(name + " has no shape rule: its shapes were computed on the CPU from zeros");
    if (!run_on_cpu(op, c, out, args))
        TORCH_CHECK_NOT_IMPLEMENTED(false, "plimsoll: '", name, "' has no shape rule yet (",
                                    why, ")");
}

Tensor view_of(const Tensor &base, const Tensor &m)
{
    if (base.scalar_type() != m.scalar_type()) { // view_as_real and the like
        c10::Storage storage = base.storage();
        Tensor t = at::detail::make_tensor<c10::TensorImpl>(
            c10::TensorImpl::VIEW, std::move(storage), base.key_set(), m.dtype());
        int64_t first =
            base.storage_offset() * (int64_t)base.itemsize() / (int64_t)m.itemsize();
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

// Of the i-th tensor of the first list: results of _foreach_ ops are where their arguments are.
Device device_of_each(const Call &c, size_t i)
{
    for (const IValue &v : c.in)
        if (v.isTensorList() && i < v.toTensorVector().size())
            return v.toTensorVector()[i].device();
    return c10::kCPU;
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
            for (const Tensor &t : v.toTensorVector()) {
                OnDevice there(device_of_each(c, list.size()));
                list.push_back(fresh(t));
            }
            stack->push_back(list);
        } else
            stack->push_back(v);
    }
}

// Ops whose writes leave what is known of their arguments as it is: GradScaler's
// found_inf stays 0, its scale what it was.
bool keeps_contents(const std::string &name) { return name.compare(0, 10, "aten::_amp") == 0; }

// out= of an op that goes element by element gets the strides that the iterator of its kernel
// gives it; Meta's reference in Python makes it contiguous.
IntList out_strides(const c10::OperatorHandle &op, const Call &c, const Tensor &out)
{
    if (!op.hasTag(at::Tag::pointwise))
        return out.strides().vec();
    at::TensorIteratorConfig config;
    config.set_check_mem_overlap(false).check_all_same_dtype(false).add_owned_output(Tensor());
    for (size_t i = 0; i < c.in.size(); i++)
        if (!c.schema.arguments()[i].is_out() && c.in[i].isTensor() && on(c.in[i].toTensor()))
            config.add_owned_const_input(as_meta(c.in[i].toTensor()));
    config.declare_static_dtype_and_device(out.scalar_type(), c10::kMeta);
    return config.build().output().strides().vec();
}

void after_writes(const c10::OperatorHandle &op, const Call &c,
                  const std::vector<IValue> &args, bool keep)
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
                become(t, args[i].toTensor().sizes(), out_strides(op, c, args[i].toTensor()));
        } else if (c.in[i].isTensorList() && !keep) {
            for (const Tensor &t : c.in[i].toTensorVector())
                forget(t);
        }
    }
}

} // namespace
