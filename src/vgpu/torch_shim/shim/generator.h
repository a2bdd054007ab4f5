// generator.h -- random numbers of the card: a seed and an offset, as PyTorch's Philox has
// them.  Nothing is drawn.
#pragma once
#include "state.h"

namespace {

struct Generator final : c10::GeneratorImpl {
    uint64_t seed_ = c10::default_rng_seed_val, offset_ = 0;

    explicit Generator(DeviceIndex index)
        : GeneratorImpl(Device(c10::kCUDA, index < 0 ? 0 : index),
                        c10::DispatchKeySet(DispatchKey::CUDA))
    {
    }
    void set_current_seed(uint64_t seed) override
    {
        seed_ = seed;
        offset_ = 0;
    }
    void set_offset(uint64_t offset) override { offset_ = offset; }
    uint64_t get_offset() const override { return offset_; }
    uint64_t current_seed() const override { return seed_; }
    uint64_t seed() override
    {
        set_current_seed(c10::detail::getNonDeterministicRandom(true));
        return seed_;
    }
    void set_state(const c10::TensorImpl &state) override
    {
        const uint64_t *p = static_cast<const uint64_t *>(state.data());
        TORCH_CHECK(state.numel() == 2 * sizeof *p, "RNG state is wrong size");
        seed_ = p[0];
        offset_ = p[1];
    }
    c10::intrusive_ptr<c10::TensorImpl> get_state() const override
    {
        Tensor state = at::empty({2 * sizeof seed_}, at::kByte);
        uint64_t *p = reinterpret_cast<uint64_t *>(state.data_ptr());
        p[0] = seed_;
        p[1] = offset_;
        return state.getIntrusivePtr();
    }

  private:
    Generator *clone_impl() const override
    {
        auto *copy = new Generator(device().index());
        copy->seed_ = seed_;
        copy->offset_ = offset_;
        return copy;
    }
};

} // namespace
