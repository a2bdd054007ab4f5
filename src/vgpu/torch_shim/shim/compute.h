// compute.h -- ops on values that are known, or taken for something: they run on the CPU,
// when one of their results is read.
#pragma once
#include "guesses.h"
#include "shapes.h"

namespace {

constexpr int kDepth = 64;                 // ops that may wait for one another
constexpr int64_t kElements = 16 << 20;    // of an argument
constexpr int64_t kHostElements = 8 << 10; // of an argument that is on the CPU

struct Geometry {
    IntList size, stride;
    int64_t offset = 0;
    ScalarType type;
    size_t storage;
    uint64_t at; // its address, which says what shares it

    explicit Geometry(const Tensor &t)
        : size(t.sizes().vec()), stride(t.strides().vec()), offset(t.storage_offset()),
          type(t.scalar_type()), storage(t.storage().nbytes()), at(address(t))
    {
    }
};

struct Input {
    Geometry form;
    ValueRef value; // nullptr: it is only written
    bool number;    // a Python number that became a tensor
};

struct Output {
    Geometry form;
    std::weak_ptr<Value> value;
    int input;              // it is this input, written; -1: a result
    size_t result, element; // which
};

struct Later {
    c10::OperatorHandle op;
    std::vector<IValue> args; // tensors on the card are Meta tensors, in the order of inputs
    std::vector<Input> inputs;
    std::vector<Output> outputs;
    bool uniform = false; // one element stands for all

    explicit Later(const c10::OperatorHandle &o) : op(o) { kept += kCost; }
    Later(const Later &) = delete;
    ~Later() { kept -= kCost; }
    static constexpr size_t kCost = 1024;
};

void force(Value &v)
{
    if (v.later)
        compute(*std::shared_ptr<Later>(v.later));
}

using Buffers = std::unordered_map<uint64_t, std::vector<uint8_t>>; // storages by address

// The bytes of a storage, for an op to read and write.
uint8_t *buffer_of(const Geometry &f, Value &v, Buffers &buffers)
{
    auto it = buffers.find(f.at);
    if (it != buffers.end())
        return it->second.data();
    std::vector<uint8_t> &b = buffers[f.at];
    b = v.bytes;
    if (v.uniform) {
        b.resize(f.storage);
        for (size_t n = v.bytes.size(), i = n; i < b.size(); i++)
            b[i] = b[i - n];
    }
    return b.data();
}

Tensor on_host(const Geometry &f, Value &v, Buffers &buffers, bool one)
{
    force(v);
    IntList size = one ? IntList(f.size.size(), 1) : f.size;
    if (v.uniform && v.type == f.type && (one || f.storage > limit_of(f.type)))
        return at::from_blob(v.bytes.data(), {}, at::TensorOptions(f.type))
            .clone()
            .expand(size);
    TORCH_CHECK(f.storage <= (v.trust == ROUTED ? kKeepRouted : kKeep),
                "plimsoll: too large to compute");
    uint8_t *p = buffer_of(f, v, buffers);
    TORCH_CHECK(buffers[f.at].size() == f.storage, "plimsoll: another storage");
    return at::from_blob(p + f.offset * (int64_t)c10::elementSize(f.type), size, f.stride,
                         at::TensorOptions(f.type));
}

// The op's result for an output, in the bytes of its storage.
std::vector<uint8_t> result_of(const Later &l, const Output &o, const Stack &stack,
                               const std::vector<Tensor> &inputs, const Buffers &buffers)
{
    const Geometry &f = o.form;
    if (o.input >= 0 && l.inputs[(size_t)o.input].value && !l.uniform)
        return buffers.at(f.at);
    const IValue *v = o.input < 0 ? &stack[o.result] : nullptr;
    Tensor t = !v              ? inputs[(size_t)o.input]
               : v->isTensor() ? v->toTensor()
                               : v->toListRef()[o.element].toTensor();
    if (l.uniform) {
        Tensor one = t.reshape(-1).narrow(0, 0, 1).to(f.type).contiguous();
        auto *p = static_cast<const uint8_t *>(one.const_data_ptr());
        return {p, p + one.nbytes()};
    }
    TORCH_CHECK(t.sizes() == IntArrayRef(f.size), "plimsoll: another size");
    return bytes_of(t, f.storage, f.type, f.size, f.stride, f.offset);
}

void compute(Later &l)
{
    std::lock_guard<std::recursive_mutex> lock(computing);
    if (l.outputs.empty())
        return;
    c10::InferenceMode plain(false);
    at::AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    std::vector<Output> outputs = std::move(l.outputs);
    l.outputs.clear();
    std::vector<std::vector<uint8_t>> made;
    try {
        Buffers buffers;
        std::vector<Tensor> inputs;
        for (Input &in : l.inputs) {
            inputs.push_back(in.value ? on_host(in.form, *in.value, buffers, l.uniform)
                                      : at::empty(l.uniform ? IntList(in.form.size.size(), 1)
                                                            : in.form.size,
                                                  at::TensorOptions(in.form.type)));
            if (in.number)
                inputs.back().unsafeGetTensorImpl()->set_wrapped_number(true);
        }
        size_t next = 0;
        Stack stack;
        auto take = [&](const Tensor &t) { return t.is_meta() ? inputs[next++] : t; };
        for (const IValue &v : l.args)
            stack.push_back(convert(v, take, Device(c10::kCPU)));
        l.op.callBoxed(&stack);
        for (const Output &o : outputs)
            made.push_back(result_of(l, o, stack, inputs, buffers));
    } catch (const std::exception &) { // of what was only guessed: an index out of range
        made.clear();
    }
    for (size_t i = 0; i < outputs.size(); i++) {
        ValueRef v = outputs[i].value.lock();
        if (!v)
            continue;
        bool fine = !made.empty();
        v->uniform = l.uniform || !fine;
        v->trust = fine ? v->trust : GUESSED;
        v->set(fine ? std::move(made[i])
                    : std::vector<uint8_t>(c10::elementSize(outputs[i].form.type), 0));
        v->later = nullptr;
    }
    l.args.clear();
    l.inputs.clear();
}

// The tensor on the CPU, if its values are known so well.
Tensor recall(const Tensor &t, Trust worst)
{
    ValueRef v = t.numel() ? recorded(t) : nullptr;
    if (!v || v->trust > worst)
        return Tensor();
    std::lock_guard<std::recursive_mutex> lock(computing);
    c10::InferenceMode plain(false);
    at::AutoDispatchBelowADInplaceOrView below;
    Buffers buffers;
    force(*v);
    if (v->trust > worst)
        return Tensor();
    try {
        return on_host(Geometry(t), *v, buffers, false).clone();
    } catch (const c10::Error &) {
        return Tensor();
    }
}

// ---- what the results of an op will be ---------------------------------------------------

// The op's results follow from its arguments, and are more than views of them.
bool computes(const c10::OperatorHandle &op)
{
    if (op.hasTag(at::Tag::nondeterministic_seeded) ||
        op.operator_name().name.find("empty") != std::string::npos)
        return false;
    bool any = false;
    for (const auto &r : op.schema().returns())
        any |= !r.alias_info();
    for (const auto &a : op.schema().arguments()) {
        if (a.name() == "generator")
            return false;
        any |= writes(a.alias_info());
    }
    return any;
}

// One element of uniform arguments says what all of the result are.
bool keeps_uniform(const c10::OperatorHandle &op)
{
    static const std::unordered_set<std::string> names = {
        "aten::any",  "aten::all",  "aten::max",   "aten::min",
        "aten::amax", "aten::amin", "aten::copy_", "aten::clone"};
    return op.hasTag(at::Tag::pointwise) || names.count(op.operator_name().name);
}

template <class F> bool each_tensor(const IValue &v, F f)
{
    if (v.isTensor())
        return !v.toTensor().defined() || f(v.toTensor());
    if (v.isList())
        for (const IValue &e : v.toListRef())
            if (e.isTensor() && e.toTensor().defined() && !f(e.toTensor()))
                return false;
    return true;
}

// Made before an op forgets what it writes; settled once its results are there.
class Answer {
    const c10::OperatorHandle &op_;
    std::shared_ptr<Later> later_;
    Trust trust_ = KNOWN;
    bool masks_ = false; // of masks that nothing is known of
    bool loose_ = false;
    int depth_ = 0;

    // An output that counts for nothing before the op.
    static bool only_written(const Call &c, size_t i, const Tensor &t)
    {
        const auto &a = c.schema.arguments()[i];
        const std::string &name = c.schema.name();
        return writes(a.alias_info()) && whole(t) &&
               (a.kwarg_only() || name == "aten::copy_" || name == "aten::fill_");
    }

    // What the arguments are taken for; false: nothing comes of it.
    bool look(const Call &c, std::vector<ValueRef> &values)
    {
        const Guess *guess = nullptr;
        bool looked = false;
        auto see = [&](size_t i, const Tensor &t) {
            if (!on(t))
                return t.device().is_cpu() && t.layout() == at::kStrided &&
                       t.numel() <= kHostElements;
            if (!t.has_storage() || t.numel() > (int64_t)1 << 40)
                return false;
            if (only_written(c, i, t)) {
                values.push_back(nullptr);
                return true;
            }
            ValueRef v = recorded(t);
            if (!v) {
                if (!looked)
                    guess = guess_of(op_.operator_name().name);
                looked = true;
                v = guess ? nullptr : guessed(t);
                masks_ |= t.scalar_type() == ScalarType::Bool;
            }
            if (!v || (!v->uniform && t.numel() > kElements))
                return false;
            trust_ = std::max(trust_, v->trust);
            depth_ = std::max(depth_, v->depth + 1);
            loose_ |= v->loose;
            values.push_back(std::move(v));
            return true;
        };
        for (size_t i = 0; i < c.in.size(); i++)
            if (!each_tensor(c.in[i], [&](const Tensor &t) { return see(i, t); }))
                return false;
        return true;
    }

    void keep(const Tensor &t, int input, size_t result, size_t element)
    {
        if (!on(t) || !t.numel() || !t.has_storage())
            return;
        bool integer = at::isIntegralType(t.scalar_type(), false);
        bool is_bool = t.scalar_type() == ScalarType::Bool;
        if ((masks_ && !integer) || (trust_ != KNOWN && !integer && !is_bool))
            return;
        if ((later_->uniform || input < 0) && !whole(t))
            return;
        if (!later_->uniform && t.storage().nbytes() > limit_of(t.scalar_type(), trust_))
            return;
        auto v = std::make_shared<Value>(t.scalar_type(), trust_);
        v->later = later_;
        v->depth = depth_;
        v->loose = loose_ && is_bool;
        v->uniform = later_->uniform;
        later_->outputs.push_back({Geometry(t), v, input, result, element});
        record(t, std::move(v));
    }

  public:
    Answer(const c10::OperatorHandle &op, const Call &c) : op_(op)
    {
        std::vector<ValueRef> values;
        if (!computes(op) || kept > kKeepAll || !look(c, values))
            return;
        auto later = std::make_shared<Later>(op);
        later->uniform = !values.empty() && keeps_uniform(op);
        size_t next = 0;
        auto take = [&](const Tensor &t) -> Tensor {
            if (!on(t)) {
                later->uniform = later->uniform && (!t.defined() || t.numel() == 1);
                return t.defined() ? t.clone() : t;
            }
            const ValueRef &v = values[next++];
            later->inputs.push_back(
                {Geometry(t), v, t.unsafeGetTensorImpl()->is_wrapped_number()});
            later->uniform = later->uniform && (!v || t.numel() == 1 ||
                                                (v->uniform && v->type == t.scalar_type()));
            return at::detail::empty_strided_meta({0}, {1}, t.scalar_type());
        };
        at::AutoDispatchBelowADInplaceOrView below;
        for (const IValue &v : c.in)
            later->args.push_back(convert(v, take, Device(c10::kCPU)));
        for (size_t i = 0; i < c.in.size() && later->uniform; i++)
            if (writes(c.schema.arguments()[i].alias_info()))
                later->uniform = each_tensor(c.in[i], whole);
        later_ = std::move(later);
    }

    void settle(const Call &c, const Stack &stack)
    {
        const Guess *guess = later_ ? nullptr : guess_of(op_.operator_name().name);
        if (!later_ && !guess)
            return;
        auto found = [&](const Tensor &t, int input, size_t result, size_t element) {
            if (later_)
                keep(t, input, result, element);
            else if (whole(t) && result >= guess->first &&
                     at::isIntegralType(t.scalar_type(), true)) {
                ValueRef v = guess->each ? guess->each(c, t) : nullptr;
                v = v ? v : uniform(t.scalar_type(), guess->of(c), GUESSED);
                v->loose = t.scalar_type() == ScalarType::Bool;
                record(t, std::move(v));
            }
            return true;
        };
        int next = 0;
        for (size_t i = 0; i < c.in.size(); i++) {
            bool written = writes(c.schema.arguments()[i].alias_info());
            each_tensor(c.in[i], [&](const Tensor &t) {
                int input = on(t) ? next++ : -1;
                return !written || !on(t) || found(t, input, 0, 0);
            });
        }
        const auto &returns = c.schema.returns();
        for (size_t r = 0; r < returns.size(); r++) {
            size_t element = 0;
            if (!returns[r].alias_info())
                each_tensor(stack[stack.size() - returns.size() + r],
                            [&](const Tensor &t) { return found(t, -1, r, element++); });
        }
        if (later_ && depth_ > kDepth)
            compute(*later_);
    }
};

} // namespace
