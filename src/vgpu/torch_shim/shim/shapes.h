// shapes.h -- the results of any op, by its Meta kernel.
#pragma once
#include "call.h"
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

bool only_writes(const Call &c) // every result is an argument
{
    bool any = false;
    for (const auto &a : c.schema.arguments())
        any |= writes(a.alias_info());
    for (const auto &r : c.schema.returns())
        any &= writes(r.alias_info());
    return any;
}

// A Meta kernel in Python may be what a signal interrupts.
bool ends_script(const std::string &error)
{
    for (const char *name : {"KeyboardInterrupt", "Stopped", "SystemExit"})
        if (error.compare(0, strlen(name), name) == 0)
            return true;
    return false;
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
        if (ends_script(why))
            throw;
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

} // namespace
