/* zoo.c -- the list of built-in models, and how one is made.  See zoo.h. */
#include "zoo/zoo.h"

#include <stdio.h>

#include "base/fmt.h"
#include "base/items.h"

#define FAMILIES(X)                                                                           \
    X(alexnet)                                                                                \
    X(convnext)                                                                               \
    X(densenet)                                                                               \
    X(efficientnet)                                                                           \
    X(googlenet)                                                                              \
    X(inception)                                                                              \
    X(lenet)                                                                                  \
    X(mlp)                                                                                    \
    X(mnasnet)                                                                                \
    X(mobilenet)                                                                              \
    X(resnet)                                                                                 \
    X(shufflenet)                                                                             \
    X(squeezenet)                                                                             \
    X(swin)                                                                                   \
    X(unet)                                                                                   \
    X(vgg)                                                                                    \
    X(vit)                                                                                    \
    X(names)

#define X(family) extern const plim_zoo_family plim_zoo_##family;
FAMILIES(X)
#undef X
#define X(family) &plim_zoo_##family,
static const plim_zoo_family *const families[] = {FAMILIES(X)};
#undef X

/* ---- what a model is -------------------------------------------------------------- */

const char *plim_zoo_kind(const plim_zoo_model *m)
{
    static const struct {
        const char *kind, *types; /* all other types continue a text */
    } rows[] = {
        {"encoder",
         "bert roberta distilbert electra xlm-roberta camembert mpnet modernbert esm "
         "xlm-roberta-xl roformer squeezebert deberta-v2"},
        {"seq2seq", "t5 bart"},
        {"audio", "whisper wav2vec2 hubert unispeech unispeech-sat"},
        {"vision", "vit swin dinov2 dinov3_vit"},
        {"vision-text", "clip gemma3 llava siglip qwen2_vl qwen2_5_vl qwen3_vl qwen3_5"},
        {"diffusion", "diffusers:pipeline"},
    };
    if (!m->model_type)
        return m->parse ? "" : "vision";
    if (m->library)
        return "vision";
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        if (plim_item_has(rows[i].types, plim_str_of(m->model_type)))
            return rows[i].kind;
    return "text";
}

/* The configuration is text of names.def, which has one space after a colon. */
uint64_t plim_zoo_context(const plim_zoo_model *m)
{
    static const char *const keys[] = {"\"max_position_embeddings\": ", "\"n_positions\": "};
    uint64_t n = 0;
    for (size_t i = 0; m->config && !n && i < PLIM_COUNT(keys); i++) {
        const char *p = strstr(m->config, keys[i]);
        for (p = p ? p + strlen(keys[i]) : ""; *p >= '0' && *p <= '9'; p++)
            n = n * 10 + (uint64_t)(*p - '0');
    }
    return n;
}

/* ---- the list -------------------------------------------------------------------- */

uint32_t plim_zoo_count(void)
{
    uint32_t n = 0;
    for (size_t i = 0; i < PLIM_COUNT(families); i++)
        n += families[i]->n;
    return n;
}

const plim_zoo_model *plim_zoo_at(uint32_t i, const char **family)
{
    for (size_t k = 0; k < PLIM_COUNT(families); k++) {
        if (i < families[k]->n) {
            const plim_zoo_model *m = &families[k]->models[i];
            if (family)
                *family = m->library      ? m->library
                          : m->model_type ? m->model_type
                                          : families[k]->name;
            return m;
        }
        i -= families[k]->n;
    }
    return NULL;
}

static bool name_equals(plim_str a, plim_str b)
{
    bool same = a.n == b.n;
    for (size_t i = 0; same && i < a.n; i++)
        same = plim_lower(a.p[i]) == plim_lower(b.p[i]);
    return same;
}

/* "meta-llama/Llama-3.1-8B" to "Llama-3.1-8B" */
static plim_str name_last_part(plim_str s)
{
    const char *slash = s.n ? memchr(s.p, '/', s.n) : NULL;
    return slash ? (plim_str){slash + 1, s.n - (size_t)(slash + 1 - s.p)} : s;
}

/* The name, then the others, one a call; *rest begins as NULL. */
static bool name_next(const plim_zoo_model *m, const char **rest, plim_str *name)
{
    if (!*rest) {
        *name = plim_str_of(m->name);
        *rest = m->alias ? m->alias : "";
        return true;
    }
    *rest += strspn(*rest, " ");
    *name = (plim_str){*rest, strcspn(*rest, " ")};
    *rest += name->n;
    return name->n > 0;
}

/* A name as it is compared: its letters and digits in lower case, with a dot where other
 * characters separate two digits, so that "Llama 3.1 8B" is "llama3.1.8b". */
typedef struct name_key {
    char s[PLIM_NAME_MAX];
    size_t n;
} name_key;

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static name_key key_of_name(plim_str name)
{
    name_key k = {{0}, 0};
    bool gap = false;
    for (size_t i = 0; i < name.n && k.n + 1 < sizeof k.s; i++) {
        char c = plim_lower(name.p[i]);
        bool part = (c >= 'a' && c <= 'z') || is_digit(c);
        if (part && gap && k.n && is_digit(c) && is_digit(k.s[k.n - 1]))
            k.s[k.n++] = '.';
        if (part)
            k.s[k.n++] = c;
        gap = !part;
    }
    return k;
}

static bool zoo_called(const plim_zoo_model *m, plim_str name)
{
    const char *rest = NULL;
    plim_str other;
    while (name_next(m, &rest, &other))
        if (name_equals(name, other) || name_equals(name, name_last_part(other)))
            return true;
    return false;
}

/* The same by keys. */
static bool zoo_called_loosely(const plim_zoo_model *m, const name_key *k)
{
    const char *rest = NULL;
    plim_str other;
    while (name_next(m, &rest, &other)) {
        name_key whole = key_of_name(other), part = key_of_name(name_last_part(other));
        if ((k->n == whole.n && !memcmp(k->s, whole.s, k->n)) ||
            (k->n == part.n && !memcmp(k->s, part.s, k->n)))
            return true;
    }
    return false;
}

/* The only model of that name if spaces, dashes and underscores are ignored; NULL: none, or
 * several.  A name with a slash is one of the hub or a path, which is exact. */
static const plim_zoo_model *zoo_find_loosely(plim_str name)
{
    name_key k = key_of_name(name);
    const plim_zoo_model *found = NULL, *m;
    if (!k.n || memchr(name.p, '/', name.n))
        return NULL;
    for (uint32_t i = 0; (m = plim_zoo_at(i, NULL)); i++) {
        if (!zoo_called_loosely(m, &k))
            continue;
        if (found)
            return NULL;
        found = m;
    }
    return found;
}

/* The model that has exactly this name, but for its case. */
static const plim_zoo_model *zoo_find_exactly(plim_str name)
{
    const plim_zoo_model *m;
    for (uint32_t i = 0; (m = plim_zoo_at(i, NULL)); i++)
        if (zoo_called(m, name))
            return m;
    return NULL;
}

/* "mlp:3,4" is "mlp" with the argument "3,4", "timm:resnet50" a name; arg->p NULL: no argument. */
static const plim_zoo_model *zoo_find(plim_str name, bool loosely, plim_str *arg)
{
    const char *colon = name.n ? memchr(name.p, ':', name.n) : NULL;
    *arg = (plim_str){NULL, 0};
    const plim_zoo_model *m = zoo_find_exactly(name);
    if (m)
        return m;
    if (!colon)
        return loosely ? zoo_find_loosely(name) : NULL;
    *arg = (plim_str){colon + 1, name.n - (size_t)(colon - name.p) - 1};
    m = zoo_find_exactly((plim_str){name.p, (size_t)(colon - name.p)});
    return m && m->parse ? m : NULL;
}

bool plim_zoo_has(plim_str name, bool loosely)
{
    plim_str arg;
    return zoo_find(name, loosely, &arg) != NULL;
}

const char *plim_zoo_weights(plim_str name)
{
    plim_str arg;
    const plim_zoo_model *m = zoo_find(name, true, &arg);
    return m ? m->weights : NULL;
}

/* ---- names that are nearly right ------------------------------------------------- */

enum { NEAREST = 3, FAR = 1000 };

/* Where b begins in a; a->n: nowhere. */
static size_t near_index(const name_key *a, const name_key *b)
{
    size_t at = 0;
    while (at + b->n <= a->n && memcmp(a->s + at, b->s, b->n) != 0)
        at++;
    return at + b->n <= a->n ? at : a->n;
}

/* How unlike two names are; FAR: too unlike to be meant.  A name that begins with the
 * other is as near as one edit, however long the rest, and one that has it inside as two;
 * of these the shorter is nearer. */
static uint32_t near_distance(const name_key *asked, const name_key *name)
{
    enum { EDIT = 70, SHORTEST = 3 }; /* an edit outweighs any length */
    bool longer = name->n >= asked->n;
    const name_key *whole = longer ? name : asked, *part = longer ? asked : name;
    uint32_t edits =
        plim_edit_distance((plim_str){asked->s, asked->n}, (plim_str){name->s, name->n});
    uint32_t rest = (uint32_t)(whole->n - part->n);
    size_t at = near_index(whole, part);
    if (part->n >= SHORTEST && at < whole->n)
        return PLIM_MIN(edits, at ? 2 : 1) * EDIT + rest;
    return edits <= PLIM_MAX(1, asked->n / 5) && edits < asked->n ? edits * EDIT + rest : FAR;
}

static uint32_t zoo_distance(const plim_zoo_model *m, const name_key *asked)
{
    const char *rest = NULL;
    plim_str name;
    uint32_t least = FAR;
    while (name_next(m, &rest, &name)) {
        name_key k = key_of_name(name_last_part(name));
        least = PLIM_MIN(least, near_distance(asked, &k));
    }
    return least;
}

/* At most NEAREST names, nearest first, into best; returns how many. */
static uint32_t zoo_near(plim_str name, const char *best[NEAREST])
{
    uint32_t far[NEAREST], n = 0;
    const plim_zoo_model *m;
    name_key asked = key_of_name(name_last_part(name));
    for (uint32_t i = 0; asked.n && (m = plim_zoo_at(i, NULL)); i++) {
        uint32_t d = zoo_distance(m, &asked), at = n;
        if (d >= FAR)
            continue;
        while (at > 0 && d < far[at - 1])
            at--;
        if (at == NEAREST)
            continue;
        n = PLIM_MIN(n + 1, NEAREST);
        for (uint32_t k = n - 1; k > at; k--) {
            far[k] = far[k - 1];
            best[k] = best[k - 1];
        }
        far[at] = d;
        best[at] = m->name;
    }
    return n && !far[0] ? 1 : n; /* nothing but its dashes is wrong */
}

plim_status plim_zoo_unknown(plim_str name, plim_err *err)
{
    const char *best[NEAREST];
    char list[128] = "";
    uint32_t n = zoo_near(name, best);
    for (uint32_t i = 0; i < n; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s'%s'",
                 !i          ? "; did you mean "
                 : i + 1 < n ? ", "
                             : " or ",
                 best[i]);
    }
    return plim_fail(err, PLIM_EUSAGE, 0,
                     "no built-in model '" PLIM_STR_FMT "'%s%s (see 'plimsoll models')",
                     (int)PLIM_MIN(name.n, (size_t)PLIM_NAME_MAX), name.p ? name.p : "", list,
                     n ? "?" : "");
}

/* ---- building one ------------------------------------------------------------------ */

enum { MAX_SIZE = INT32_MAX };

/* The shape that the user binds, or NULL: then the model's own is taken. */
static const struct plim_input_shape *zoo_given(plim_nn *n, const plim_zoo_model *m,
                                                const plim_binding *bind, int32_t rank,
                                                int64_t channels)
{
    if (bind->seq)
        plim_nn_fail(n, PLIM_EUSAGE, "'%s' has no sequence length to set", m->name);
    if (bind->n_dims)
        plim_nn_fail(n, PLIM_EUSAGE, "'%s' leaves no size '" PLIM_STR_FMT "' open", m->name,
                     PLIM_STR_ARG(bind->dims[0].name));
    if (bind->n_inputs > 1)
        plim_nn_fail(n, PLIM_EUSAGE, "'%s' has 1 input, shapes are given for %u", m->name,
                     (unsigned)bind->n_inputs);
    if (n->st || !bind->n_inputs)
        return NULL;
    const struct plim_input_shape *in = &bind->inputs[0];
    if (in->name.n && !plim_str_is(in->name, "x"))
        plim_nn_fail(n, PLIM_EUSAGE, "'%s' has no input '" PLIM_STR_FMT "', only 'x'", m->name,
                     PLIM_STR_ARG(in->name));
    else if (in->rank != rank)
        plim_nn_fail(n, PLIM_EUSAGE, "the input of '%s' has %d dimensions, the shape given %d",
                     m->name, (int)rank, (int)in->rank);
    else if (in->dim[1] != channels)
        plim_nn_fail(n, PLIM_ESHAPE,
                     "'%s' takes %" PRId64 " channels, the shape given has %" PRId64, m->name,
                     channels, in->dim[1]);
    return n->st ? NULL : in;
}

/* The input's sizes: batch and one sample, or what the user binds.  The batch
 * goes before the shape's first size.  Returns the rank. */
static int32_t zoo_shape(plim_nn *n, const plim_zoo_model *m, const int64_t *sample,
                         const plim_binding *bind, int64_t dim[4])
{
    static const plim_binding nothing = {0};
    int32_t rank = 1;
    bind = bind ? bind : &nothing;
    dim[0] = 1;
    for (int i = 0; i < 3 && sample[i]; i++)
        dim[rank++] = sample[i];
    const struct plim_input_shape *in = zoo_given(n, m, bind, rank, sample[0]);
    for (int32_t i = 0; in && i < rank; i++)
        dim[i] = in->dim[i];
    if (bind->batch)
        dim[0] = bind->batch;
    for (int32_t i = 0; i < rank; i++)
        if (dim[i] < 1 || dim[i] > MAX_SIZE)
            plim_nn_fail(n, PLIM_ERANGE, "size %" PRId64 " of dimension %d is not in 1..%d",
                         dim[i], (int)i, (int)MAX_SIZE);
    return rank;
}

/* A model of the hub, as its config.json would be read. */
static plim_status zoo_configure(plim_graph *g, const plim_zoo_model *m,
                                 const plim_binding *bind, plim_err *err)
{
    plim_source s = {.bytes = {.p = (const uint8_t *)m->config, .n = strlen(m->config)}};
    plim_status st = plim_importer_probe(s.bytes)->read(g, &s, bind, err);
    g->about.name = plim_str_of(m->name);
    g->about.format = PLIM_STR("built-in");
    g->about.producer = plim_str_of(m->src);
    return st;
}

/* The published accuracy of a model; 0: not known. */
static uint32_t zoo_top1(const plim_zoo_model *m)
{
    static const struct {
        const char *name;
        uint32_t top1;
    } rows[] = {
#define TOP1(name, side, top1) {#name, top1},
#include "zoo/top1.def"
#undef TOP1
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        if (!strcmp(rows[i].name, m->name))
            return rows[i].top1;
    return 0;
}

static plim_status zoo_construct(plim_graph *g, const plim_zoo_model *m, plim_str name,
                                 plim_str arg, const plim_binding *bind, plim_err *err)
{
    int64_t sample[3], dim[4] = {0};
    plim_nn n;
    plim_nn_init(&n, g, err);
    n.infer = bind && bind->infer;
    plim_graph_expect(g, bind ? bind->values : 0);
    memcpy(sample, m->input, sizeof sample);
    const void *row = arg.p ? m->parse(&n, arg, &sample[0]) : m->row;
    g->about.name = arg.p ? plim_arena_str(g->arena, name) : plim_str_of(m->name);
    g->about.format = PLIM_STR("built-in");
    g->about.producer = plim_str_of(m->src);
    g->about.top1 = zoo_top1(m);
    if (!g->about.name.p)
        n.st = plim_oom(err);
    int32_t rank = n.st ? 0 : zoo_shape(&n, m, sample, bind, dim);
    if (!n.st) {
        g->sizes.batch = dim[0];
        m->build(&n, row, plim_nn_input(&n, "x", PLIM_F32, (plim_ints){dim, (uint32_t)rank}));
    }
    return n.st;
}

plim_status plim_zoo_build(plim_graph *g, plim_str name, const plim_binding *bind,
                           plim_err *err)
{
    plim_str arg;
    const plim_zoo_model *m = zoo_find(name, true, &arg);
    if (!m)
        return plim_zoo_unknown(name, err);
    plim_status st = plim_graph_init(g, g->arena, err);
    if (st)
        return st;
    st =
        m->config ? zoo_configure(g, m, bind, err) : zoo_construct(g, m, name, arg, bind, err);
    if (st)
        plim_err_prefix(err, "cannot build '" PLIM_STR_FMT "': ",
                        (int)PLIM_MIN(name.n, (size_t)PLIM_NAME_MAX), name.p);
    return st;
}
