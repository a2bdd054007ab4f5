// storage.h -- UntypedStorage.resize_ on the card, with which FSDP frees and takes parameters.
#pragma once
#include "labels.h"

// Called by plimsoll_front with Python's lock held.  What was in the storage is not kept.
// nullptr: done; else PyTorch's message that the card is out of memory.
extern "C" __attribute__((visibility("default"))) const char *plimsoll_shim_resize(
    c10::StorageImpl *storage, size_t n)
{
    static thread_local std::string text;
    InOp in("resize_");
    try {
        c10::DeviceGuard there(storage->device());
        replace_memory(*storage, n);
    } catch (const c10::OutOfMemoryError &e) {
        text = e.what_without_backtrace();
        return text.c_str();
    }
    return nullptr;
}
