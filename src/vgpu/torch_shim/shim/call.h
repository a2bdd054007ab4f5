// call.h -- the arguments of an op, by name.
#pragma once
#include "tensors.h"

namespace {

// Where an op runs: on the device that it names, else on that of its first tensor on a card.
// src: what torchgen generates for each op of a CUDA build, device_guard
Device device_of(const std::vector<IValue> &in)
{
    std::optional<Device> tensor;
    for (const IValue &v : in) {
        if (v.isDevice() && v.toDevice().is_cuda())
            return v.toDevice();
        if (tensor)
            continue;
        if (v.isTensor() && on(v.toTensor()))
            tensor = v.toTensor().device();
        else if (v.isList())
            for (const IValue &e : v.toListRef())
                if (!tensor && e.isTensor() && on(e.toTensor()))
                    tensor = e.toTensor().device();
    }
    return tensor.value_or(c10::kCPU);
}

// The arguments of an op, which runs on their device until this goes.
struct Call {
    const c10::FunctionSchema &schema;
    std::vector<IValue> in;
    std::optional<OnDevice> there;

    Call(const c10::OperatorHandle &op, Stack *stack) : schema(op.schema())
    {
        size_t n = schema.arguments().size();
        in.assign(std::make_move_iterator(stack->end() - n),
                  std::make_move_iterator(stack->end()));
        torch::jit::drop(*stack, n);
        there.emplace(device_of(in));
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

} // namespace
