// running.h -- the op that runs, and what its allocations are tagged with.
#pragma once
#include "lines.h"

namespace {

struct Running {
    const char *op = nullptr;
    Place place;
    bool has_place = false;
    plim_category category = PLIM_CAT_COUNT; // the lib's guess by phase
};
thread_local Running now;
thread_local int pending_rank = -1, pending_dtype = -1;
thread_local int64_t pending_dim[8];

Place place_now()
{
    if (!now.has_place) {
        now.place = user_place();
        now.has_place = now.op != nullptr; // outside an op each call is its own
    }
    return now.place;
}
const char *line_now() { return place_now().line; }

struct InOp { // names what is allocated until it goes
    Running before = now;
    explicit InOp(const char *op)
    {
        now.op = op;
        now.has_place = false;
        now.category = PLIM_CAT_COUNT;
        if (!torch::autograd::get_current_node())
            note_node(place_now());
        else
            patience = 0;
    }
    ~InOp() { now = before; }
};

// ---- dtypes ----------------------------------------------------------------------

int dtype_of(ScalarType t)
{
    switch (t) {
    case ScalarType::Float: return PLIM_F32;
    case ScalarType::Half: return PLIM_F16;
    case ScalarType::BFloat16: return PLIM_BF16;
    case ScalarType::Double: return PLIM_F64;
    case ScalarType::Long: return PLIM_I64;
    case ScalarType::Int: return PLIM_I32;
    case ScalarType::Short: return PLIM_I16;
    case ScalarType::Char: return PLIM_I8;
    case ScalarType::Byte: return PLIM_U8;
    case ScalarType::UInt16: return PLIM_U16;
    case ScalarType::UInt32: return PLIM_U32;
    case ScalarType::UInt64: return PLIM_U64;
    case ScalarType::Bool: return PLIM_BOOL;
    case ScalarType::ComplexFloat: return PLIM_C64;
    case ScalarType::ComplexDouble: return PLIM_C128;
    case ScalarType::ComplexHalf: return PLIM_C32;
    case ScalarType::Float8_e4m3fn: return PLIM_F8E4M3FN;
    case ScalarType::Float8_e5m2: return PLIM_F8E5M2;
    default: return -1;
    }
}

void pending(IntArrayRef size, ScalarType t)
{
    pending_rank = size.size() <= 8 ? (int)size.size() : -1;
    pending_dtype = pending_rank < 0 ? -1 : dtype_of(t);
    for (int i = 0; i < pending_rank; i++)
        pending_dim[i] = size[i];
}

plim_vgpu_tag tag_now()
{
    plim_vgpu_tag t = {};
    t.line = place_now().line;
    t.module = place_now().module;
    t.op = now.op;
    t.dtype = pending_dtype;
    t.rank = pending_rank;
    t.dim = pending_dim;
    t.category = now.category;
    t.certainty = PLIM_EXACT;
    pending_dtype = pending_rank = -1;
    return t;
}

[[noreturn]] void out_of_memory()
{
    char text[1024];
    plim_vgpu_oom_text(card(), text, sizeof text);
    TORCH_CHECK_WITH(OutOfMemoryError, false, text);
    abort(); // not reached
}

} // namespace
