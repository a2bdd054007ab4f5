// fallback.h -- every op without a rule of its own.
#pragma once
#include "compute.h"
#include "kernels.h"
#include "refuse.h"

namespace {

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
    check_call(op, c);
    Answer answer(op, c);
    std::optional<Words> words; // of the arguments as they are now
    Results results;
    if (row)
        words.emplace(c);
    if (row && makes && words->ok) {
        check_sizes(op, c);
        run_kernel(row, *words, results);
        for (const char *statistic : {"running_mean", "running_var"})
            forget(c.tensor(statistic));
        give_made(c, tensors_of(results, *words), stack);
        answer.settle(c, *stack);
        return;
    }
    run_shapes(op, c, out, args);
    after_writes(op, c, args, keeps_contents(name));
    give(c, out, stack);
    if (!keeps_contents(name))
        answer.settle(c, *stack);
    if (row && words->ok)
        run_kernel(row, *words, results);
}

} // namespace

// A rule of a file rules_*.h takes an op's arguments from the stack.
template <void (*rule)(const c10::OperatorHandle &, Stack *)>
void checked(const c10::OperatorHandle &op, Stack *stack)
{
    check_call(op, torch::jit::last(*stack, op.schema().arguments().size()));
    rule(op, stack);
}
#define RULE(name, fn) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&checked<&fn>>())

TORCH_LIBRARY_IMPL(_, CUDA, m)
{
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}
