// reads.h -- what the host gets when it reads from the card, and what the report says of it.
#pragma once
#include "compute.h"

namespace {

thread_local const char *reader = nullptr; // what reads, in place of "item()"

// One note a line: the first value stands for those that follow.
void note_read(const char *how, const Tensor &v, bool assumed)
{
    static std::unordered_map<std::string, std::string> said;
    static std::mutex mu;
    const char *line = line_now();
    std::string text = std::string(how) + " is a guess";
    if (v.numel() == 1) {
        at::Scalar s = v.item();
        char number[40];
        snprintf(number, sizeof number, s.isFloatingPoint() ? ": %g" : ": %.0f",
                 s.isComplex() ? 0 : s.toDouble());
        text += s.isBoolean() ? s.toBool() ? ": True" : ": False" : number;
    }
    text += assumed ? " (--mask-fraction)" : " (--scalar)";
    std::lock_guard<std::mutex> lock(mu);
    caveat(said.emplace(std::string(line ? line : "") + "\n" + how, text).first->second);
}

// Loops that wait for luck end: a check of which nothing is known, that a line asks again
// and again without a backward pass, goes the other way at last.
bool patience_ends()
{
    const char *line = line_now();
    patience = line == patient_line ? patience + 1 : 1;
    patient_line = line;
    if (patience <= 1000)
        return false;
    patience = 0;
    caveat("a check went one way 1000 times in a row: it goes the other way");
    return true;
}

Tensor guess_at(const Tensor &t)
{
    bool mask = t.scalar_type() == ScalarType::Bool && t.storage().nbytes() > 1;
    if (mask && !recorded(t)) // what is read once stays so
        if (ValueRef v = guessed(t))
            record(t, std::move(v));
    Tensor v = recall(t, GUESSED);
    if (v.defined())
        return v;
    return at::zeros(t.sizes(), at::TensorOptions(t.scalar_type()));
}

// The values of `t` on the CPU, as far as they are known.
Tensor read(const Tensor &t, const char *how)
{
    Tensor v = recall(t);
    if (v.defined() || !t.numel())
        return v.defined() ? v : at::empty(t.sizes(), at::TensorOptions(t.scalar_type()));
    v = guess_at(t);
    ValueRef value = recorded(t);
    bool assumed = value && value->trust == ASSUMED;
    bool number = at::isFloatingType(t.scalar_type()) || at::isComplexType(t.scalar_type());
    if (g.scalar >= 0 && !assumed)
        v = at::full_like(v, number ? at::Scalar(g.scalar) : at::Scalar(g.scalar == 1));
    else if (std::isnan(g.scalar) && number)
        v = at::full_like(v, g.scalar);
    else if (t.scalar_type() == ScalarType::Bool && v.numel() == 1 &&
             (!value || value->loose) && patience_ends())
        v = v.logical_not();
    note_read(how, v, assumed);
    return v;
}

} // namespace
