// guesses.h -- what a tensor is taken for of whose values nothing is known.
//
// Integers are 0, which is an index, a class, a count.  Floats are --scalar, or 0; comparisons
// of them are masks, with --mask-fraction of their elements set.  The ops below have
// answers of their own: a check finds nothing wrong.
#pragma once
#include "values.h"

namespace {

struct Guess {
    size_t first;                   // the first of the op's results that it is for
    at::Scalar (*of)(const Call &); // of all elements
    ValueRef (*each)(const Call &,
                     const Tensor &) = nullptr; // of each; its answer may be null
};

at::Scalar yes(const Call &) { return true; }
at::Scalar no_such(const Call &) { return false; }
// Over all it is a check; over a dimension a mask of those that have one.
at::Scalar any_such(const Call &c) { return !c.at("dim").isNone(); }
at::Scalar lowest(const Call &c) { return c.integer("from"); }

// An index along a dimension.  Of a vocabulary not one of the first: those are what
// tokenizers end and pad with, and a sequence would be over at once.
at::Scalar place(const Call &c)
{
    Tensor x = c.tensor("self");
    return x.dim() && x.size(c.integer("dim", -1)) > 16 ? 7 : 0;
}

// What a router chooses: of E experts, K for each token.  Balanced, each expert is as often
// among them as the others; at worst all tokens choose this rank's experts, from its first.
ValueRef chosen(const Call &c, const Tensor &t)
{
    constexpr int64_t kExperts = 1024; // more are a vocabulary, or boxes
    Tensor x = c.tensor("self");
    int64_t dim = x.dim() ? at::maybe_wrap_dim(c.integer("dim", -1), x.dim()) : 0;
    int64_t k = t.numel() && x.dim() == t.dim() ? t.size(dim) : 0;
    if (x.dim() < 2 || dim != x.dim() - 1 || x.size(dim) > kExperts || k >= x.size(dim) ||
        !k || t.nbytes() > kKeepRouted)
        return nullptr;
    int64_t experts = x.size(dim), own = std::max<int64_t>(experts / g.world, 1);
    std::vector<uint8_t> bytes(t.nbytes());
    auto *index = reinterpret_cast<int64_t *>(bytes.data());
    for (int64_t i = 0; i < t.numel(); i++)
        index[i] = (g.routing_worst ? g.rank * own + i % k : i) % experts;
    auto v = std::make_shared<Value>(t.scalar_type(), ROUTED);
    v->set(std::move(bytes));
    return v;
}

const Guess *guess_of(const std::string &name)
{
    static const std::unordered_map<std::string, Guess> table = {
        {"aten::all", {0, yes}},           {"aten::any", {0, any_such}},
        {"aten::isfinite", {0, yes}},      {"aten::isnan", {0, no_such}},
        {"aten::isinf", {0, no_such}},     {"aten::isposinf", {0, no_such}},
        {"aten::isneginf", {0, no_such}},  {"aten::random_", {0, lowest}},
        {"aten::argmax", {0, place}},      {"aten::argmin", {0, place}},
        {"aten::multinomial", {0, place}}, {"aten::max", {1, place}},
        {"aten::min", {1, place}},         {"aten::topk", {1, place, chosen}},
        {"aten::sort", {1, place}},
    };
    auto it = table.find(name);
    return it == table.end() ? nullptr : &it->second;
}

int64_t selected(int64_t n) { return (int64_t)std::ceil(g.mask_fraction * (double)n); }

// A mask of n elements; selected(n) of them are set, evenly.
std::vector<uint8_t> mask_of(int64_t n)
{
    std::vector<uint8_t> mask((size_t)n);
    double k = (double)selected(n);
    for (int64_t i = 0; i < n; i++)
        mask[(size_t)i] =
            (int64_t)((double)(i + 1) * k / (double)n) > (int64_t)((double)i * k / (double)n);
    return mask;
}

// What `t` is taken for; nullptr: for nothing, which saves the work of computing on.
ValueRef guessed(const Tensor &t)
{
    if (at::isIntegralType(t.scalar_type(), false))
        return uniform(t.scalar_type(), 0, GUESSED);
    if (t.scalar_type() != ScalarType::Bool)
        return nullptr;
    if (t.storage().nbytes() == 1) { // a check
        ValueRef v = uniform(ScalarType::Bool, false, GUESSED);
        v->loose = true;
        return v;
    }
    if (g.mask_fraction >= 1 || g.mask_fraction <= 0)
        return uniform(ScalarType::Bool, g.mask_fraction >= 1, ASSUMED);
    if (t.storage().nbytes() > kKeep)
        return nullptr;
    auto v = std::make_shared<Value>(ScalarType::Bool, ASSUMED);
    v->set(mask_of((int64_t)t.storage().nbytes()));
    return v;
}

} // namespace
