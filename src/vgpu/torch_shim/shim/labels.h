// labels.h -- what a storage turned out to be, which it stays when its memory is replaced.
#pragma once
#include "device.h"

namespace {

// Storages without memory have their label in place of a block.
void drop_label(void *label) { delete static_cast<Label *>(label); }

Label label_of(const c10::StorageImpl &s)
{
    if (s.data_ptr().get_deleter() == &drop_label)
        return *static_cast<Label *>(s.data_ptr().get_context());
    std::lock_guard<std::mutex> lock(g.mu);
    auto it = g.blocks.find((uint64_t)(uintptr_t)s.data());
    return it == g.blocks.end() ? Label() : it->second.label;
}

void give_label(c10::StorageImpl &s, Label label)
{
    if (!alive() || s.device_type() != DeviceType::CUDA || label.category == PLIM_CAT_COUNT)
        return;
    if (!s.data()) {
        s.set_data_ptr_noswap({nullptr, new Label(label), &drop_label, s.device()});
        return;
    }
    uint64_t addr = (uint64_t)(uintptr_t)s.data();
    uint32_t block;
    {
        std::lock_guard<std::mutex> lock(g.mu);
        auto it = g.blocks.find(addr);
        if (it == g.blocks.end())
            return;
        it->second.label = label;
        block = it->second.block;
    }
    plim_vgpu_label(g.cards[plim_vgpu_card_at(addr)], block, label.category, label.name,
                    nullptr);
}

// What was in the storage is not kept.
void replace_memory(c10::StorageImpl &s, size_t n)
{
    Label label = label_of(s);
    c10::DataPtr fresh = allocator.allocate(n);
    s.set_data_ptr_noswap(std::move(fresh));
    s.set_nbytes(n);
    give_label(s, label);
}

} // namespace
