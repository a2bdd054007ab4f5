// shim.cpp -- a GPU that does not exist, for a CPU build of PyTorch.
//
// In such a build nothing is registered for the dispatch key CUDA.  This file
// registers: an allocator that asks libplimsoll, a device guard, CUDA hooks, and
// for every op one fallback that asks the op's Meta kernel for the shapes of its
// results and allocates those.  So the real dispatcher, autograd engine and
// optimizers run as for a GPU, and no kernel does.
//
// Where a CUDA kernel differs from what the Meta kernel says (other outputs,
// tensors of its own, results whose size depends on values) there is a rule in one of
// the files rules_*.h, by the op's name.  Rules read their arguments by name, so that
// one text serves several PyTorch versions.
//
// Compiled by plimsoll_front/build.py on first use, against the headers of the PyTorch at hand.
#include "rules_attention.h"
#include "rules_copy.h"
#include "rules_detection.h"
#include "rules_rnn.h"
#include "rules_sparse.h"
#include "rules_values.h"
#include "storage.h"

namespace at {
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", Hooks)
}

// ---- what plimsoll_front calls ----------------------------------------------------

// Functional and in-place forms of structured ops come with a composite kernel that
// would allocate before the op is known, and some that a CUDA build has a kernel for
// with one that would be taken here: they go to the fallback too.
static void take_ops()
{
    static torch::Library lib(torch::Library::IMPL, "aten", DispatchKey::CUDA, __FILE__,
                              __LINE__);
    auto &dispatcher = c10::Dispatcher::singleton();
    for (const auto &name : dispatcher.getAllOpNames()) {
        auto op = dispatcher.findOp(name);
        bool makes;
        if (name.name.compare(0, 6, "aten::") == 0 && op && op->hasSchema() &&
            !op->hasKernelForDispatchKey(DispatchKey::CUDA) &&
            (op->hasKernelForDispatchKey(
                 DispatchKey::CompositeExplicitAutogradNonFunctional) ||
             kernel_row(c10::toString(name), &makes)))
            lib.impl(c10::toString(name).c_str(),
                     torch::CppFunction::makeFromBoxedFunction<&fallback>());
    }
}

extern "C" {

// The cards are this process's: the first, or a fork of one that has not used them.
__attribute__((visibility("default"))) void plimsoll_shim_begin_anew()
{
    g.pid = getpid();
    g.main_thread = at::RecordFunction::currentThreadId();
}

// `skip`: path prefixes that are not the user's, one a line.  `packages`: installed ones are.
__attribute__((visibility("default"))) void plimsoll_shim_open(
    plim_vgpu *const *cards, int n, int torch, double scalar, double mask_fraction,
    bool routing_worst, int rank, int world, const char *skip, bool packages, const char *cwd)
{
    plim_vgpu_card card;
    plim_vgpu_card_get(cards[0], &card); // the others are of the same kind
    std::copy(cards, cards + n, g.cards);
    g.machine = n;
    plimsoll_shim_begin_anew();
    g.torch = torch;
    g.cc = card.cc;
    g.sms = card.sms;
    g.peers = card.peers;
    g.workspace = card.workspace;
    g.scalar = scalar;
    g.mask_fraction = mask_fraction;
    g.routing_worst = routing_worst;
    g.rank = rank;
    g.world = world;
    py.open();
    py.packages = packages;
    py.cwd = std::string(cwd) + "/";
    for (const char *p = skip; *p;) {
        size_t n = strcspn(p, "\n");
        if (n)
            py.skip.emplace_back(p, n);
        p += n + (p[n] == '\n');
    }
    c10::SetAllocator(DeviceType::CUDA, &allocator);
    static c10::impl::DeviceGuardImplRegistrar registrar(DeviceType::CUDA, &guard);
    take_ops();
    connect_attention();
    connect_rnn();
    g.open = true;
}

__attribute__((visibility("default"))) void plimsoll_shim_close() { g.open = false; }

// Remarks on what was guessed, for the report.
__attribute__((visibility("default"))) void plimsoll_shim_tell_guesses() { tell_guesses(); }

// Where the user's code is now; "" if nowhere.
__attribute__((visibility("default"))) const char *plimsoll_shim_line()
{
    const char *line = python_line();
    return line ? line : "";
}

// This thread was started there.
__attribute__((visibility("default"))) void plimsoll_shim_inherit(const char *line)
{
    inherited_line = intern(line);
}

// The storage turned out to be a parameter, a gradient ...
__attribute__((visibility("default"))) void plimsoll_shim_label(c10::StorageImpl *storage,
                                                                int category, const char *name)
{
    give_label(*storage, {(plim_category)category, intern(name)});
}

// What it is, unless somebody has said.
__attribute__((visibility("default"))) void plimsoll_shim_presume(c10::StorageImpl *storage,
                                                                  int category)
{
    if (label_of(*storage).category == PLIM_CAT_COUNT)
        give_label(*storage, {(plim_category)category, ""});
}

// The module that runs from now on.
__attribute__((visibility("default"))) void plimsoll_shim_module(const char *path)
{
    g.module = intern(path);
}

// The number that the next node of autograd will have.
__attribute__((visibility("default"))) uint64_t plimsoll_shim_sequence()
{
    return at::sequence_number::peek();
}

// Of this thread, on a card that the script sees.
__attribute__((visibility("default"))) int64_t plimsoll_shim_stream(int index)
{
    return current_streams[index];
}
__attribute__((visibility("default"))) void plimsoll_shim_set_stream(int index, int64_t id)
{
    current_device = (DeviceIndex)index;
    current_streams[index] = id;
}

__attribute__((visibility("default"))) int plimsoll_shim_device() { return current_device; }
__attribute__((visibility("default"))) void plimsoll_shim_set_device(int index)
{
    current_device = (DeviceIndex)index;
}
__attribute__((visibility("default"))) int plimsoll_shim_device_count()
{
    return visible_cards();
}
}
