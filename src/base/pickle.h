/* pickle.h -- reads a Python pickle without executing it.
 *
 * Python executes a pickle: it imports the modules and calls the functions that the pickle
 * names.  Here a name stays a name, and a call becomes a value that says what would be called
 * with what.  Nothing is imported, nothing is called, no object is made.
 *
 * Every opcode of protocols 0 to 5 is read, except for the extension registry (copyreg) and
 * out-of-band buffers.  Time and memory are linear in the size of the pickle: values that the
 * pickle uses twice (through its memo) are shared, never copied.  A walker must therefore
 * count its steps, and may meet a list that contains itself.
 *
 * Strings and bytes stay where they are in the file.  A reader of pickles too large for memory
 * takes the dicts in their lists one by one, as they come (plim_pickle_sink): what is taken is
 * forgotten, and its memory serves the next.  So are the bytes of the file, and each text is kept
 * once, as a word.
 *
 * src: Lib/pickletools.py of CPython 3.14 */
#ifndef PLIM_PICKLE_H
#define PLIM_PICKLE_H

#include "base/base.h"

#define PLIM_PICKLE_MAX_BYTES (1ull << 30)

typedef enum plim_pickle_kind {
    PLIM_PICKLE_ABSENT, /* no value: the result of a failed look-up */
    PLIM_PICKLE_NONE,
    PLIM_PICKLE_BOOL,  /* i */
    PLIM_PICKLE_INT,   /* i */
    PLIM_PICKLE_LONG,  /* p, n: beyond 64 bits; little-endian, or digits (protocol 0) */
    PLIM_PICKLE_FLOAT, /* f */
    PLIM_PICKLE_STR,   /* p, n: UTF-8; in protocol 0 with its escapes as written */
    PLIM_PICKLE_BYTES, /* p, n */
    PLIM_PICKLE_TAKEN, /* i: what a sink made of the value that was here */
    /* node */
    PLIM_PICKLE_LIST,
    PLIM_PICKLE_TUPLE,
    PLIM_PICKLE_SET,
    PLIM_PICKLE_DICT,       /* items: key, value, key, value */
    PLIM_PICKLE_GLOBAL,     /* items: module, name */
    PLIM_PICKLE_PERSISTENT, /* items: the id of something kept outside */
    PLIM_PICKLE_CALL,       /* call; items: what was put into the result */
} plim_pickle_kind;

typedef struct plim_pickle_node plim_pickle_node;

typedef struct plim_pickle_value {
    plim_pickle_kind kind;
    uint32_t n;
    union {
        int64_t i;
        double f;
        const char *p; /* borrowed from the file, or with a sink the text of a word */
        plim_pickle_node *node;
    };
} plim_pickle_value;

/* fn(*args), then result.__setstate__(state). */
typedef struct plim_pickle_call {
    plim_pickle_value fn, args, state;
} plim_pickle_call;

struct plim_pickle_node {
    plim_pickle_value *items;
    union {
        plim_pickle_call *call; /* of a call only */
        int64_t meaning;        /* if spent */
        plim_pickle_node *next; /* if nothing refers to it any more */
    };
    uint32_t n, cap;
    uint32_t memo; /* number of its memo entry, plus one; 0: none */
    bool pairs;    /* items: key, value, key, value */
    bool open;     /* free for walkers to use; false at first */
    bool shared;   /* the pickle uses it twice */
    bool spent;    /* a sink has understood it: `meaning` takes its place */
};

/* A string, some bytes or a long number of a pickle that is read with a sink. */
enum { PLIM_PICKLE_MEANINGS = 3 };
typedef struct plim_pickle_word {
    uint32_t n, hash;
    uint32_t meaning[PLIM_PICKLE_MEANINGS]; /* free for the sink to use; 0 at first */
    char text[];                            /* NUL after it */
} plim_pickle_word;

/* Takes dicts out of a pickle while it is read. */
typedef struct plim_pickle_sink {
    void *ud;
    /* Is shown a dict that is about to be appended to a list.  It may set *instead, which is
     * the dict, to a value of kind TAKEN, which is appended in its place, or ABSENT: nothing
     * is.  The dict is then forgotten, with the lists and tuples in it that are spent, unless
     * the pickle uses them elsewhere too; a later use of what is forgotten is the value
     * TAKEN with its meaning. */
    plim_status (*take)(void *ud, plim_pickle_node *list, plim_pickle_value *instead,
                        plim_err *err);
} plim_pickle_sink;

typedef struct plim_pickle {
    plim_pickle_value root;
    plim_pickle_value *globals;     /* every name in file order, with repeats */
    plim_pickle_value *persistents; /* every persistent id, in the same way */
    uint32_t n_globals, cap_globals, n_persistents, cap_persistents;
    uint64_t end; /* offset after the pickle */
} plim_pickle;

/* Reads the pickle that begins at byte `at` of `b`, into the arena.  `base`, the offset of b
 * in the file, is added to the offsets in errors. */
plim_status plim_pickle_read(plim_pickle *p, plim_arena *a, plim_bytes b, uint64_t at,
                             uint64_t base, plim_err *err);

/* The same for a pickle of plain data, of any length, with a sink: one that names code is refused,
 * PLIM_EUNSUPPORTED. */
plim_status plim_pickle_read_plain(plim_pickle *p, plim_arena *a, plim_bytes b,
                                   const plim_pickle_sink *sink, plim_err *err);

static inline plim_str plim_pickle_text(plim_pickle_value v) /* {NULL, 0}: not a string */
{
    return v.kind == PLIM_PICKLE_STR ? (plim_str){v.p, v.n} : (plim_str){NULL, 0};
}
/* The word of a text; with a sink only. */
static inline plim_pickle_word *plim_pickle_word_of(plim_pickle_value v)
{
    return (plim_pickle_word *)(uintptr_t)(v.p - offsetof(plim_pickle_word, text));
}
static inline bool plim_pickle_has_node(plim_pickle_value v)
{
    return v.kind >= PLIM_PICKLE_LIST;
}
/* Number of items of a value; 0 if it has none. */
static inline uint32_t plim_pickle_count(plim_pickle_value v)
{
    return plim_pickle_has_node(v) ? v.node->n : 0;
}
/* Item i of a list, a tuple or the like; absent if there are fewer. */
static inline plim_pickle_value plim_pickle_at(plim_pickle_value v, uint32_t i)
{
    return i < plim_pickle_count(v) ? v.node->items[i] : (plim_pickle_value){0};
}
/* The value under this key of a dict, or of the result of a call that was filled like one. */
plim_pickle_value plim_pickle_get(plim_pickle_value dict, const char *key);
bool plim_pickle_is_global(plim_pickle_value v, const char *module, const char *name);

#endif
