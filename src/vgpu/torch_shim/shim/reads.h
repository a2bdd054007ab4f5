// reads.h -- what the host gets when it reads from the card, and what the report says of it.
#pragma once
#include "compute.h"

namespace {

thread_local const char *reader = nullptr; // what reads, in place of "item()"

// What a line has read that is a guess.  It is one remark, however many ways it was read in: one
// line of a script, as trainer.train() is, may read much.
struct Guesses {
    const char *line;
    std::vector<std::string>
        ways;          // those that decide a branch end with a comma, and come last
    std::string first; // value, if one way is all
    bool scalar = false, mask = false, routing = false; // which options set the value
    uint64_t count = 0;
};
std::vector<Guesses> guesses_told;
std::mutex guesses_mu;

void note_read(const char *how, const Tensor &v, Trust trust)
{
    std::lock_guard<std::mutex> lock(guesses_mu);
    const char *line = line_now();
    line = line ? line : "";
    auto of = std::find_if(guesses_told.begin(), guesses_told.end(),
                           [&](const Guesses &x) { return !strcmp(x.line, line); });
    if (of == guesses_told.end())
        of = guesses_told.insert(of, Guesses{intern(line)});
    auto &ways = of->ways;
    auto decides = [](const std::string &way) { return way.back() == ','; };
    if (std::find(ways.begin(), ways.end(), how) == ways.end())
        ways.insert(
            decides(how) ? ways.end() : std::find_if(ways.begin(), ways.end(), decides), how);
    (trust == ASSUMED ? of->mask : trust == ROUTED ? of->routing : of->scalar) = true;
    if (of->count++ || v.numel() != 1)
        return;
    at::Scalar s = v.item();
    char number[40];
    snprintf(number, sizeof number, s.isFloatingPoint() ? ": %g" : ": %.0f",
             s.isComplex() ? 0 : s.toDouble());
    of->first = s.isBoolean() ? s.toBool() ? ": True" : ": False" : number;
}

// "item() is a guess: 0 (--scalar)", "a copy to the host and item() are guesses (--scalar)"
std::string words_of(const Guesses &x)
{
    std::string text;
    for (size_t i = 0; i < x.ways.size(); i++)
        text += (!i ? "" : i + 1 < x.ways.size() ? ", " : " and ") + x.ways[i];
    text += x.ways.size() == 1 ? " is a guess" + x.first : " are guesses";
    const char *gap = " (";
    for (auto [option, sets] : {std::pair("--scalar", x.scalar),
                                {"--mask-fraction", x.mask},
                                {"--routing", x.routing}})
        if (sets) {
            text += std::string(gap) + option;
            gap = ", ";
        }
    return text + ")";
}

// At the end, when they are all there.
void tell_guesses()
{
    std::lock_guard<std::mutex> lock(guesses_mu);
    for (const Guesses &x : guesses_told) {
        std::string words = words_of(x);
        for (uint64_t i = 0; i < x.count; i++)
            plim_vgpu_note(g.cards[0], x.line, words.c_str(), nullptr);
    }
    guesses_told.clear();
}

// Loops that wait for luck end: a check with an unknown answer, that a line asks again
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
    Trust trust = value ? value->trust : GUESSED;
    bool number = at::isFloatingType(t.scalar_type()) || at::isComplexType(t.scalar_type());
    if (g.scalar >= 0 && trust == GUESSED)
        v = at::full_like(v, number ? at::Scalar(g.scalar) : at::Scalar(g.scalar == 1));
    else if (std::isnan(g.scalar) && number)
        v = at::full_like(v, g.scalar);
    else if (t.scalar_type() == ScalarType::Bool && v.numel() == 1 &&
             (!value || value->loose) && patience_ends())
        v = v.logical_not();
    note_read(how, v, trust);
    return v;
}

} // namespace
