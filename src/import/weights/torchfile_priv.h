/* torchfile_priv.h -- between the files that read what torch.save writes; each calls
 * only those above it:
 *
 *     torchfile_names.c   what the pickle would import and call
 *     torchfile_tensor.c  storages and tensors
 *     torchfile_object.c  names of objects, dicts, single values
 *     torchfile_optim.c   which optimizer a state dict is of
 *     torchfile_walk.c    the objects that hold tensors: names, kinds, modules
 *     torchfile_sum.c     what follows from all of it: copies, shared bytes, facts
 *     torchfile.c         the zip and the legacy container
 *
 * base/pickle.h gives what a pickle would build, as a tree of values; no call in it is
 * made.  Of torch.save({"model": net.state_dict(), "epoch": 3}) with one weight:
 *
 *     DICT "model": CALL collections.OrderedDict(), filled with
 *                     "fc.weight": CALL torch._utils._rebuild_tensor_v2(
 *                                    PERSISTENT ("storage", torch.FloatStorage,
 *                                                "0", "cuda:0", 12),
 *                                    0, (3, 4), (4, 1), False, ..)
 *          "epoch": INT 3
 *
 * The walk goes down this tree and joins the keys on its way, so that it is at
 * "model.fc.weight" when it meets the call.  plim_torch_tensor knows it by its name: the
 * storage "0" has 12 elements of 4 bytes, which the record data/0 of the archive must
 * have; offset 0, size (3, 4) and stride (4, 1) span bytes 0 to 48 of it.  That becomes an
 * item of the inventory (fp32, [3, 4], 48 bytes) and an entry here (storage 0, 0..48),
 * from which torchfile_sum.c tells later whose bytes are shared.  3 under "epoch" is no
 * tensor; as it stands at the top, it becomes a fact. */
#ifndef PLIM_TORCHFILE_PRIV_H
#define PLIM_TORCHFILE_PRIV_H

#include "base/fmt.h"
#include "base/pickle.h"
#include "import/import.h"

enum {
    TORCH_NAME_MAX = 1024, /* bytes of a tensor's name; what is longer is cut */
    TORCH_DEPTH_MAX = 64,  /* of objects in objects */
};

typedef struct torch_storage {
    plim_str key, location; /* "0", "cuda:0" */
    uint64_t bytes;
} torch_storage;

typedef struct torch_tensor {
    plim_str type;
    int32_t rank;
    int64_t dim[PLIM_MAX_RANK];
    uint32_t storage;    /* PLIM_NONE: the file has no bytes of it (meta) */
    uint64_t begin, end; /* what it spans of its storage, in bytes */
    uint64_t bytes;      /* of its elements, were they dense */
    bool parameter;      /* nn.Parameter */
} torch_tensor;

/* Where a walk is. */
typedef struct torch_place {
    plim_item_kind kind;
    uint32_t depth;
    uint32_t group; /* the top object's item that it is under, or PLIM_NONE */
    plim_str state; /* optimizer state: "exp_avg" */
    bool on_host;   /* optimizer state that stays in the host's memory */
    bool in_module; /* kinds are known, names are not guessed by */
} torch_place;

/* An item of the inventory, and what it is not enough to know of it. */
typedef struct torch_entry {
    uint32_t item, storage;
    uint64_t begin, end, bytes;
    torch_place at;
    uint32_t top; /* bytes of its name that are the group's */
} torch_entry;

typedef struct torchfile {
    plim_inventory *v;
    plim_arena *a;
    plim_err *err;
    bool script, part; /* TorchScript; a shard: facts of the whole are not said */

    const plim_map *records; /* storage key: place in record_bytes; NULL: legacy */
    const uint64_t *record_bytes;
    plim_map storage_ids;
    torch_storage *storages;
    torch_entry *entries;
    uint32_t n_storages, cap_storages, n_entries, cap_entries;

    char name[TORCH_NAME_MAX];
    uint32_t n_name, n_top;
    uint64_t steps, most; /* of the walk */
    uint32_t level;
    bool too_deep, grouped; /* grouped: the top is a dict */
    uint32_t n_unread, n_sparse, n_modules, n_optimizers;
    plim_str unread, module; /* the first of each */
} torchfile;

/* ---- torchfile_names.c --------------------------------------------------------- */

/* Refuses a pickle that runs a program, notes what else torch.load would not take. */
plim_status plim_torch_check_names(torchfile *f, const plim_pickle *p);

/* ---- torchfile_tensor.c ---------------------------------------------------------- */

/* The tensor that a value is, or *is = false. */
plim_status plim_torch_tensor(torchfile *f, plim_pickle_value v, torch_tensor *t, bool *is);
plim_status plim_torch_storage(torchfile *f, plim_pickle_value v, torch_tensor *t, bool *is);

/* ---- torchfile_object.c ---------------------------------------------------------- */

/* Into and out of the item of this name; keys that are not text go by their place. */
uint32_t plim_torch_enter(torchfile *f, plim_pickle_value key, uint32_t place);
plim_pickle_value plim_torch_key(const char *z);
void plim_torch_leave(torchfile *f, uint32_t before);

/* What is in a dict, pair by pair; also in what a call made of one. */
bool plim_torch_is_dict(plim_pickle_value v);
uint32_t plim_torch_pairs(plim_pickle_value v);
plim_pickle_value plim_torch_pair(plim_pickle_value v, uint32_t i, plim_pickle_value *key);
/* The list in OrderedDict([[key, value], ...]), as Python 2 wrote it; of another kind: none. */
plim_pickle_value plim_torch_pair_list(plim_pickle_value v);

/* A number, a text or a bool, as a person would write it; false: it is something else. */
bool plim_torch_put_scalar(plim_buf *out, plim_pickle_value v);

/* ---- torchfile_optim.c ------------------------------------------------------------ */

bool plim_torch_is_optimizer(plim_pickle_value v);
/* A fact: which optimizer it is, its options, how many parameters it has. */
plim_status plim_torch_say_optimizer(torchfile *f, plim_pickle_value groups,
                                     plim_pickle_value state);
/* Is the "step" of its states on the card? */
bool plim_torch_step_on_card(plim_pickle_value groups);

/* ---- torchfile_walk.c ------------------------------------------------------------ */

/* The top object of a file. */
plim_status plim_torch_walk_root(torchfile *f, const plim_pickle *p, plim_item_kind kind);

/* ---- torchfile_sum.c --------------------------------------------------------------- */

plim_status plim_torch_sum_up(torchfile *f);

#endif
