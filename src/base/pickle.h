/* pickle.h -- what a Python pickle says, without doing it.
 *
 * Python runs a pickle: it imports what the pickle names and calls what the pickle wants
 * called.  Here a name is a name and a call is a value that says what would be called with
 * what.  Nothing is imported, nothing is called, no object is made.
 *
 * Every opcode of protocols 0 to 5 is read, but for the extension registry (copyreg) and
 * buffers that are kept elsewhere.  Time is linear in the bytes of the pickle, and so is
 * memory: values that the pickle uses twice (by its memo) are shared, never copied, so who
 * walks them must count steps, and may meet a list that holds itself.
 *
 * Strings and bytes stay where they are in the file.  Lists and dicts are filled in one
 * place (pickle_extend): a reader of snapshots too large to be kept would take their items
 * there instead.
 *
 * src: Lib/pickletools.py of CPython 3.14 */
#ifndef PLIM_PICKLE_H
#define PLIM_PICKLE_H

#include "base/base.h"

#define PLIM_PICKLE_MAX_BYTES (1ull << 30)

typedef enum plim_pickle_kind {
    PLIM_PICKLE_ABSENT, /* no value: of a look-up that found nothing */
    PLIM_PICKLE_NONE,
    PLIM_PICKLE_BOOL,  /* i */
    PLIM_PICKLE_INT,   /* i */
    PLIM_PICKLE_LONG,  /* p, n: beyond 64 bits; little-endian, or digits (protocol 0) */
    PLIM_PICKLE_FLOAT, /* f */
    PLIM_PICKLE_STR,   /* p, n: UTF-8; of protocol 0 as written, escapes and all */
    PLIM_PICKLE_BYTES, /* p, n */
    /* node */
    PLIM_PICKLE_LIST,
    PLIM_PICKLE_TUPLE,
    PLIM_PICKLE_SET,
    PLIM_PICKLE_DICT,       /* items: key, value, key, value */
    PLIM_PICKLE_GLOBAL,     /* items: module, name */
    PLIM_PICKLE_PERSISTENT, /* items: the id of something kept outside */
    PLIM_PICKLE_CALL,       /* call: see there; items: what was put into the result */
} plim_pickle_kind;

typedef struct plim_pickle_node plim_pickle_node;

typedef struct plim_pickle_value {
    plim_pickle_kind kind;
    uint32_t n;
    union {
        int64_t i;
        double f;
        const char *p; /* borrowed from the file */
        plim_pickle_node *node;
    };
} plim_pickle_value;

/* fn(*args), then result.__setstate__(state). */
typedef struct plim_pickle_call {
    plim_pickle_value fn, args, state;
} plim_pickle_call;

struct plim_pickle_node {
    plim_pickle_value *items;
    plim_pickle_call *call; /* of a call only */
    uint32_t n, cap;
    bool pairs; /* items: key, value, key, value */
    bool open;  /* for who walks: false in the beginning */
};

typedef struct plim_pickle {
    plim_pickle_value root;
    plim_pickle_value *globals;     /* every name in the order of the file, also twice */
    plim_pickle_value *persistents; /* likewise */
    uint32_t n_globals, cap_globals, n_persistents, cap_persistents;
    uint64_t end; /* behind the pickle */
} plim_pickle;

/* Reads the pickle that begins at byte `at` of `b`, into the arena.  `base` is added to
 * the offsets in errors: where b stands in the file. */
plim_status plim_pickle_read(plim_pickle *p, plim_arena *a, plim_bytes b, uint64_t at,
                             uint64_t base, plim_err *err);

static inline plim_str plim_pickle_text(plim_pickle_value v) /* {NULL, 0}: it is none */
{
    return v.kind == PLIM_PICKLE_STR ? (plim_str){v.p, v.n} : (plim_str){NULL, 0};
}
static inline bool plim_pickle_has_node(plim_pickle_value v)
{
    return v.kind >= PLIM_PICKLE_LIST;
}
/* Items of a value; of one that has none, none. */
static inline uint32_t plim_pickle_count(plim_pickle_value v)
{
    return plim_pickle_has_node(v) ? v.node->n : 0;
}
/* Item i of a list, a tuple or the like; absent if there are not so many. */
static inline plim_pickle_value plim_pickle_at(plim_pickle_value v, uint32_t i)
{
    return i < plim_pickle_count(v) ? v.node->items[i] : (plim_pickle_value){0};
}
/* What a dict (or the result of a call that was filled like one) has under this key. */
plim_pickle_value plim_pickle_get(plim_pickle_value dict, const char *key);
bool plim_pickle_is_global(plim_pickle_value v, const char *module, const char *name);

#endif
