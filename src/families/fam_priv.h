/* fam_priv.h -- between the files of this folder. */
#ifndef PLIM_FAM_PRIV_H
#define PLIM_FAM_PRIV_H

#include "base/json.h"
#include "core/binding.h"
#include "families/family.h"

/* ---- fam_expr.c ------------------------------------------------------------------------ */

enum { FAM_MOST = 4096 }; /* modules or items of a list, turns of a loop */

typedef enum fam_kind { FAM_NONE, FAM_BOOL, FAM_INT, FAM_FLOAT, FAM_WORD, FAM_LIST } fam_kind;

/* A value of a key or an expression, as in Python. */
typedef struct fam_value {
    fam_kind kind;
    uint32_t n; /* items */
    int64_t i;  /* bool, int */
    double f;
    plim_str s;
    const struct fam_value *items;
} fam_value;

typedef struct fam_expr fam_expr; /* NULL where a text failed */

/* "?attention_mask": whether that was passed to the module which is called. */
typedef struct fam_passed {
    plim_str name;
    uint32_t id; /* an index into values */
} fam_passed;

/* Names that expressions use: keys, and what a run sets. */
typedef struct fam_names {
    plim_arena *arena;
    plim_err *err;
    plim_map ids; /* to an index into values */
    fam_value *values;
    uint32_t n, cap;
    fam_passed *passed;
    uint32_t n_passed, cap_passed;
    plim_status st; /* the first error sticks */
} fam_names;

/* A cursor over one line of the text. */
typedef struct fam_line {
    const char *p, *end;
    uint64_t at; /* of the text's line, for errors */
} fam_line;

static inline void plim_fam_oom(fam_names *x) { x->st = x->st ? x->st : plim_oom(x->err); }
/* n values of a list; NULL: there is no memory, or they are more than FAM_MOST, which fails */
fam_value *plim_fam_items(fam_names *x, int64_t n);
void plim_fam_fail(fam_names *x, uint64_t line, const char *fmt, ...) PLIM_PRINTF(3, 4);
uint32_t plim_fam_name(fam_names *x, plim_str name); /* its index, added if new */
const fam_expr *plim_fam_parse(fam_names *x, fam_line *l);
fam_value plim_fam_eval(fam_names *x, const fam_expr *e);
int64_t plim_fam_int(fam_names *x, const fam_expr *e); /* 0 after an error */
bool plim_fam_true(fam_names *x, const fam_expr *e);
bool plim_fam_equal(fam_value a, fam_value b);
bool plim_fam_uses(const fam_expr *e, uint32_t name);

static inline void plim_fam_space(fam_line *l)
{
    while (l->p < l->end && *l->p == ' ')
        l->p++;
}
static inline bool plim_fam_take(fam_line *l, const char *what)
{
    size_t n = strlen(what);
    plim_fam_space(l);
    bool is = (size_t)(l->end - l->p) >= n && !memcmp(l->p, what, n);
    l->p += is ? n : 0;
    return is;
}

/* a, b and c as one text, which ends with a NUL; {NULL, 0}: no memory. */
static inline plim_str plim_fam_concat(plim_arena *arena, plim_str a, plim_str b, plim_str c)
{
    char *p = plim_arena_new(arena, (uint64_t)a.n + b.n + c.n + 1, 1);
    if (!p)
        return (plim_str){NULL, 0};
    const plim_str parts[] = {a, b, c};
    size_t n = 0;
    for (size_t i = 0; i < PLIM_COUNT(parts); n += parts[i++].n)
        if (parts[i].n)
            memcpy(p + n, parts[i].p, parts[i].n);
    return (plim_str){p, a.n + b.n + c.n};
}

/* ---- fam_text.c ---------------------------------------------------------------------------- */

typedef enum fam_what {
    FAM_TYPE,
    FAM_OP,
    FAM_CALL,
    FAM_LOOP,
    FAM_HELD,
    FAM_RETURN,
    FAM_NEXT,
    FAM_KEEP,
    FAM_IF,
    FAM_LEAF,
    FAM_TIE,
    FAM_CHILD,
    FAM_CHILDREN, /* of a list */
    FAM_INPUT,
    FAM_LABELS, /* an input of training */
} fam_what;

/* What an item or an argument refers to. */
typedef struct fam_ref {
    enum { FAM_ITEM, FAM_IN, FAM_CAP, FAM_CARRY, FAM_OWN, FAM_TOP } kind;
    uint32_t item, k;                /* result k of an item; a number of the other kinds */
    plim_str result;                 /* or a result by its name */
    bool all;                        /* all values that the turns of a loop kept */
    const fam_expr *at;              /* or one of them */
    plim_str name;                   /* of an input, a leaf */
    const fam_expr **index;          /* of the braces in a leaf's path */
    const struct fam_ref *otherwise; /* if that did not run, or was not passed */
} fam_ref;

/* An argument of an op. */
typedef struct fam_arg {
    plim_str name;
    enum {
        FAM_A_REF,
        FAM_A_LIST,
        FAM_A_EXPR,
        FAM_A_FAR,
        FAM_A_ANY,
        FAM_A_DTYPE,
        FAM_A_MODEL_DTYPE,
        FAM_A_TEXT
    } kind;
    fam_ref ref;
    const fam_expr *expr;
    const struct fam_arg *items;
    uint32_t n;
    plim_dtype dtype;
    plim_str text;
} fam_arg;

typedef struct fam_stmt {
    struct fam_stmt *next;
    fam_what what;
    uint32_t at;          /* the item's number; of a test, the item that must have run */
    uint32_t outs;        /* its results */
    const char *text;     /* an op's target; a type; a name */
    const fam_arg *args;  /* of an op or a call; refs of the others */
    uint32_t n;           /* of args; of a test: 1 if an item must have run */
    const fam_expr *expr; /* a test, or NULL; how many turns, or results of an op */
    const struct fam_stmt *body; /* what runs if a test passes */
    const fam_expr **index;      /* of the braces in text */
    const char *part;            /* of a call or a loop: what its place adds to this one */
    bool persistent, param, frozen;
    bool outside; /* a call by its whole path */
    bool kept;    /* an input that the model makes itself, in the step before */
} fam_stmt;

/* What happens at one place, or at several. */
typedef struct fam_block {
    const fam_stmt *first;
    uint32_t items; /* numbers below this */
} fam_block;

/* A key of config.json. */
typedef struct fam_key {
    uint32_t name; /* in names */
    plim_str text; /* the name itself */
    plim_str domain;
    bool optional;            /* null is as if it were not there */
    const fam_expr *fallback; /* NULL: the file must have it */
    const fam_expr *length;   /* of a list, whose items are `fallback` with i0 */
    plim_str
        letters; /* "M=linear_attention E=moe": a word is a list of these; "": it is a word */
} fam_key;

typedef struct plim_family_model fam_program;
/* "size $patches = $height // 16 * ($width // 16)" */
typedef struct fam_size {
    plim_str name;
    const fam_expr *expr;
} fam_size;

/* A text, and the keys of a configuration. */
struct plim_family_model {
    fam_names names;
    plim_str family, class, task;
    plim_str without; /* what a training step does that is not known; "": nothing */
    plim_str
        flat; /* a configuration in this one whose keys stand in older files themselves; "": there is none */
    plim_map places;                 /* to an index into blocks, plus one */
    plim_map objects;                /* of the configuration: those that keys are in */
    plim_map ignored, read, aliases; /* read: by the class, but not known here */
    plim_map
        ropes; /* what code asks of the parameters of rotary embeddings; empty: not said */
    plim_buf unread; /* keys of the file that the class does not read */
    fam_block *blocks;
    plim_str *alias; /* of which key */
    uint32_t n_blocks, cap_blocks, n_aliases, cap_aliases;
    const fam_stmt *inputs;
    const fam_expr *image[2]; /* height and width; NULL: none is an input */
    bool fixed;               /* the class takes no others */
    const fam_expr
        *seq; /* tokens of text, of what is called with their states; NULL: it is not */
    const fam_expr *frames;   /* of a video; NULL: none is an input */
    const fam_expr *required; /* what its keys must pass; NULL: nothing */
    plim_str requires;        /* the same as text */
    const fam_expr *multiple; /* of what height and width are; NULL: of 1 */
    fam_size *sizes;          /* that the class works with, in order */
    uint32_t n_sizes, cap_sizes;
    const fam_expr *positions; /* how many tokens have a row of a table; NULL: not said */
    plim_str attention;        /* by default; empty: it has none */
    plim_str kernels;          /* packages with faster ones, where they are installed */
    plim_str made;             /* "transformers 5.24.0, torch 2.13.0, ..." */
    fam_key *keys;
    uint32_t n_keys, cap_keys;
};

plim_status plim_fam_read(fam_program *p, plim_arena *a, plim_str text, plim_err *err);
const fam_block *plim_fam_block(const fam_program *p,
                                plim_str place); /* NULL: nothing is known about it */

/* ---- fam_config.c ---------------------------------------------------------------------------- */

plim_status plim_fam_config(fam_program *p, plim_str config, plim_err *err);

/* ---- families.c ---------------------------------------------------------------- */

extern const plim_family plim_fam_texts[];
extern const uint32_t plim_fam_n_texts;

#endif
