// values.h -- what is known of the values of tensors.
//
// Of a small storage the shim keeps its bytes, or the op that makes them: it runs on the CPU
// when somebody reads one of its results, and never touches the tape.  compute.h says which
// results get a value, guesses.h what the others are taken for.
#pragma once
#include "call.h"

namespace {

enum Trust {
    KNOWN,   // as on a card
    ASSUMED, // if masks select --mask-fraction
    ROUTED,  // if routers choose as --routing says
    GUESSED  // as guesses.h says
};

constexpr size_t kKeepFloat = 64 << 10, kKeep = 1 << 20; // bytes of a storage
constexpr size_t kKeepRouted = 64 << 20;                 // that follow from a router's choices
constexpr size_t kKeepAll = 256 << 20;                   // bytes of all values together
std::atomic<size_t> kept{0};
std::recursive_mutex computing; // of all bytes and all ops that wait

struct Later; // an op that runs when one of its results is read
struct Value {
    std::shared_ptr<Later> later; // nullptr: `bytes` are there
    std::vector<uint8_t> bytes;   // of the storage; `uniform`: of an element
    bool uniform = false;         // all elements are the same, however many there are
    ScalarType type = ScalarType::Byte;
    Trust trust = KNOWN;
    bool loose = false; // follows from a check that an op guessed
    int depth = 0;      // ops that wait for one another

    Value(ScalarType s, Trust t) : type(s), trust(t) {}
    Value(const Value &) = delete;
    ~Value() { kept -= bytes.size(); }
    void set(std::vector<uint8_t> b)
    {
        kept += b.size() - bytes.size();
        bytes = std::move(b);
    }
};
using ValueRef = std::shared_ptr<Value>;

// In compute.h: runs it; the tensor on the CPU if its values are known so well.
void compute(Later &);
Tensor recall(const Tensor &t, Trust worst = KNOWN);

void caveat(const std::string &what)
{
    const char *line = line_now();
    plim_vgpu_note(g.cards[0], line ? line : "", what.c_str(), nullptr);
}

uint64_t address(const Tensor &t)
{
    return t.has_storage() ? (uint64_t)(uintptr_t)t.storage().data_ptr().get() : 0;
}
size_t limit_of(ScalarType t, Trust trust = KNOWN)
{
    return !at::isIntegralType(t, true) ? kKeepFloat : trust == ROUTED ? kKeepRouted : kKeep;
}
bool whole(const Tensor &t) // it covers all of its storage
{
    return on(t) && t.has_storage() && !t.storage_offset() &&
           t.nbytes() == t.storage().nbytes() && t.is_non_overlapping_and_dense();
}
void forget(const Tensor &t)
{
    if (!on(t))
        return;
    std::lock_guard<std::mutex> lock(g.mu);
    g.contents.erase(address(t));
}
ValueRef recorded(const Tensor &t)
{
    std::lock_guard<std::mutex> lock(g.mu);
    auto it = g.contents.find(address(t));
    return it == g.contents.end() ? nullptr : it->second;
}
void record(const Tensor &t, ValueRef v)
{
    uint64_t at = address(t);
    std::lock_guard<std::mutex> lock(g.mu);
    if (at)
        g.contents[at].swap(v); // the old one goes after the lock
}

// All elements of the storage of `t` are this number.
ValueRef uniform(ScalarType type, const at::Scalar &number, Trust trust)
{
    Tensor one = at::empty({1}, at::TensorOptions(type)).fill_(number);
    auto *p = static_cast<const uint8_t *>(one.const_data_ptr());
    auto v = std::make_shared<Value>(type, trust);
    v->uniform = true;
    v->set({p, p + one.nbytes()});
    return v;
}

// `known`, a tensor on the CPU, in the layout of `t`.
std::vector<uint8_t> bytes_of(const Tensor &known, size_t storage, ScalarType type,
                              IntArrayRef size, IntArrayRef stride, int64_t offset)
{
    std::vector<uint8_t> bytes(storage);
    Tensor all = at::from_blob(bytes.data(), {(int64_t)(storage / c10::elementSize(type))},
                               at::TensorOptions(type));
    at::as_strided(all, size, stride, offset).copy_(known);
    return bytes;
}

// `t` holds the values of `known`, a tensor on the CPU, from here on.
void remember(const Tensor &t, const Tensor &known)
{
    size_t storage = t.storage().nbytes();
    auto *p =
        static_cast<const uint8_t *>(known.is_contiguous() ? known.const_data_ptr() : nullptr);
    size_t n = t.itemsize();
    auto v = std::make_shared<Value>(t.scalar_type(), KNOWN);
    if (p && known.scalar_type() == t.scalar_type() &&
        !memcmp(p, p + n, known.nbytes() - n)) { // masks of ones, of any size
        v->uniform = true;
        v->set({p, p + n});
    } else if (storage <= limit_of(t.scalar_type()) && kept < kKeepAll) {
        v->set(bytes_of(known, storage, t.scalar_type(), t.sizes(), t.strides(), 0));
    } else {
        return;
    }
    record(t, std::move(v));
}

} // namespace
