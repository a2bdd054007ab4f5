/* quant.c -- linear layers of packed weights, as transformers makes them with bitsandbytes: see
 * transform.h.
 *
 * src: transformers 5.23 integrations/bitsandbytes.py replace_with_bnb_linear, quantizers/base.py
 * get_keys_to_not_convert; bitsandbytes 0.50 functional.py quantize_4bit */
#include "base/fmt.h"
#include "base/items.h"
#include "nn/nn.h"
#include "transform/call.h"
#include "transform/transform.h"

/* ---- the setting ---------------------------------------------------------------- */

static const char *const kinds[] = {"", "nf4", "fp4", "int8"}; /* by plim_quant_kind */

static plim_status parse_kind(plim_str word, plim_quant *out, plim_err *err)
{
    for (int i = PLIM_QUANT_NF4; i <= PLIM_QUANT_INT8; i++)
        if (plim_str_is(word, kinds[i]))
            out->kind = (plim_quant_kind)i;
    return out->kind ? PLIM_OK
                     : plim_fail(err, PLIM_EUSAGE, 0,
                                 "quant begins with nf4, fp4 or int8, not '" PLIM_STR_FMT "'",
                                 PLIM_STR_CUT(word));
}

static plim_status parse_item(plim_str key, plim_str value, plim_quant *out, plim_err *err)
{
    bool four = out->kind != PLIM_QUANT_INT8;
    if (plim_str_is(key, "prepare") && !value.n)
        out->prepare = true;
    else if (plim_str_is(key, "skip") && value.n)
        out->skip = value;
    else if (plim_str_is(key, "double") && !value.n && four)
        out->twice = true;
    else if (plim_str_is(key, "compute") && four) {
        if (!plim_dtype_find(value, &out->compute) ||
            (out->compute != PLIM_F32 && out->compute != PLIM_F16 &&
             out->compute != PLIM_BF16))
            return plim_fail(err, PLIM_EUSAGE, 0,
                             "quant: 'compute' is fp32, fp16 or bf16, not '" PLIM_STR_FMT "'",
                             PLIM_STR_CUT(value));
    } else
        return plim_fail(
            err, PLIM_EUSAGE, 0,
            "quant: %s has no item '" PLIM_STR_FMT "': it has %sprepare, skip=NAME+NAME",
            kinds[out->kind], PLIM_STR_CUT(key), four ? "double, compute=TYPE, " : "");
    return PLIM_OK;
}

plim_status plim_quant_parse(plim_str text, plim_quant *out, plim_err *err)
{
    plim_str rest = text, key, value;
    plim_status st = PLIM_OK;
    *out = (plim_quant){
        .skip = PLIM_STR(""), .compute = PLIM_DTYPE_COUNT, .made_as = PLIM_DTYPE_COUNT};
    while (!st && plim_item_next(&rest, &key, &value))
        st = out->kind ? parse_item(key, value, out, err) : parse_kind(key, out, err);
    return st || out->kind ? st : parse_kind(text, out, err);
}

/* ---- the release ----------------------------------------------------------------- */

/* "0.43.1" as 4301; -1 if it does not have that form. */
static int read_release(const char *text)
{
    int part[3];
    return plim_parse_version(text, part) ? 10000 * part[0] + 100 * part[1] + part[2] : -1;
}

plim_status plim_quant_release(const char *text, int *out, plim_err *err)
{
    *out = text ? read_release(text) : PLIM_BNB_NEWEST;
    return *out >= PLIM_BNB_OLDEST
               ? PLIM_OK
               : plim_fail(err, PLIM_EUSAGE, 0,
                           "'bitsandbytes' is '%s': known are the releases 0.41 to 0.50",
                           text);
}

/* ---- which modules ---------------------------------------------------------------- */

/* The weight that a call of a Linear or a Conv1D multiplies by, its bias, and its sizes. */
typedef struct layer {
    uint32_t weight, bias;
    int64_t out, in;
} layer;

static uint32_t leaf_of(const plim_graph *g, const plim_node *n, uint32_t slot)
{
    if (slot >= n->n_args || n->args[slot].kind != PLIM_ARG_VALUE)
        return PLIM_NONE;
    uint32_t id = n->args[slot].id;
    return id != PLIM_NONE && g->values[id].kind == PLIM_VALUE_PARAMETER ? id : PLIM_NONE;
}

static bool find_layer(const plim_graph *g, const plim_node *first, const plim_node *last,
                       bool transposed, layer *out)
{
    for (const plim_node *n = first; n < last; n++) {
        if (!plim_node_calls(n, transposed ? "addmm" : "linear"))
            continue;
        *out = (layer){leaf_of(g, n, transposed ? 2 : 1), leaf_of(g, n, transposed ? 0 : 2), 0,
                       0};
        if (out->weight == PLIM_NONE || g->values[out->weight].meta.rank != 2)
            continue;
        const int64_t *dim = g->values[out->weight].meta.dim;
        out->out = dim[transposed];
        out->in = dim[!transposed];
        return true;
    }
    return false;
}

typedef struct packer {
    plim_nn n;
    const plim_quant *spec;
    plim_str last; /* the parameter that was registered last */
    bool *tied;    /* by value: another parameter has its storage */
    uint32_t
        table;  /* of the maxima that are packed, too: before 0.46 all weights have the same */
    bool skips; /* a module was left out by its name */
    uint64_t weights; /* packed so far */
    plim_map made;    /* names of packed weights: index into parts */
    uint32_t (*parts)[PLIM_QUANT_PARTS], n_made, cap_made;
} packer;

/* src: quantizers/quantizers_utils.py should_convert_module: a name is that of a module, of one
 * around it, or the end of its path */
static bool is_skipped(plim_str path, plim_str names)
{
    plim_str name;
    while (plim_item_word(&names, '+', &name))
        if (name.n &&
            (plim_str_ends(path, name) || (path.n > name.n && path.p[name.n] == '.' &&
                                           plim_str_eq((plim_str){path.p, name.n}, name))))
            return true;
    return false;
}

/* The output layer stays as it is: the module of the last parameter, and those of tied ones. */
static bool is_kept(packer *p, const plim_scope *s, uint32_t weight)
{
    if (p->spec->skip.n) {
        bool skips = is_skipped(s->path, p->spec->skip);
        p->skips |= skips;
        return skips;
    }
    return p->tied[weight] || plim_str_eq(p->n.g->values[weight].name, p->last) ||
           plim_path_ends(s->path, PLIM_STR("lm_head"));
}

static bool find_kept(packer *p)
{
    plim_graph *g = p->n.g;
    if (!(p->tied = PLIM_NEW_N(g->arena, bool, g->n_values)))
        return false;
    for (uint32_t i = 0; i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        if (v->kind == PLIM_VALUE_PARAMETER && v->tied_to != PLIM_NONE)
            p->tied[i] = p->tied[v->tied_to] = true;
        else if (v->kind == PLIM_VALUE_PARAMETER)
            p->last = v->name;
    }
    return true;
}

/* ---- the new graph ------------------------------------------------------------------- */

enum { BLOCK = 64, AGAIN = 256, CODES = 16, CODES_AGAIN = 256 };

static int64_t ceil_div(int64_t n, int64_t of)
{
    plim_assert(n >= 0 && of > 0);
    return n / of + (n % of != 0);
}

static plim_dtype made_as(const packer *p, uint32_t weight)
{
    plim_assert(weight != PLIM_NONE);
    return p->spec->made_as != PLIM_DTYPE_COUNT ? p->spec->made_as
                                                : p->n.g->values[weight].meta.dtype;
}

/* The tensors that go with a packed weight: its name is still the open scope's. */
static void make_parts(packer *p, int64_t n, int64_t out, uint32_t *part)
{
    plim_assert(n >= 0 && out >= 0);
    plim_nn *nn = &p->n;
    int64_t blocks = ceil_div(n, BLOCK);
    if (p->spec->kind == PLIM_QUANT_INT8) {
        part[0] = plim_nn_packed(nn, "SCB", PLIM_F32, INTS(out));
        return;
    }
    part[0] =
        plim_nn_packed(nn, "weight.absmax", p->spec->twice ? PLIM_U8 : PLIM_F32, INTS(blocks));
    part[1] = plim_nn_packed(nn, "weight.quant_map", PLIM_F32, INTS(CODES));
    if (!p->spec->twice)
        return;
    part[2] =
        plim_nn_packed(nn, "weight.nested_absmax", PLIM_F32, INTS(ceil_div(blocks, AGAIN)));
    part[3] = p->spec->release < PLIM_BNB_SINCE_TABLES_COPIED
                  ? p->table
                  : plim_nn_packed(nn, "weight.nested_quant_map", PLIM_F32, INTS(CODES_AGAIN));
    part[4] = plim_nn_packed(nn, "weight.nested_offset", PLIM_F32, (plim_ints){NULL, 0});
}

/* Packs the weight, unless an earlier call of the module did; returns its parts. */
static const uint32_t *pack_weight(packer *p, const layer *l)
{
    plim_assert(l->out >= 0 && l->in >= 0);
    plim_graph *g = p->n.g;
    plim_value *v = &g->values[l->weight];
    uint32_t k;
    if (plim_map_get(&p->made, v->name, &k))
        return p->parts[k];
    if (!PLIM_PUSH_ROOM(g->arena, p->parts, p->n_made, p->cap_made) ||
        !plim_map_put(g->arena, &p->made, v->name, p->n_made)) {
        p->n.st = plim_oom(p->n.err);
        return NULL;
    }
    int64_t n = l->out * l->in; /* does not overflow: the graph was checked */
    p->weights += (uint64_t)n;
    make_parts(p, n, l->out, p->parts[p->n_made]);
    v = &g->values[l->weight]; /* which may have moved */
    v->kind = PLIM_VALUE_BUFFER;
    v->persistent = v->packed = true;
    v->requires_grad = false;
    v->meta = p->spec->kind == PLIM_QUANT_INT8
                  ? plim_meta_make(PLIM_I8, 2, (int64_t[]){l->out, l->in})
                  : plim_meta_make(PLIM_U8, 2, (int64_t[]){ceil_div(n, 2), 1});
    return p->parts[p->n_made++];
}

/* The first call of a Linear4bit casts its bias for good. */
static void cast_bias(packer *p, uint32_t bias, plim_dtype t)
{
    plim_assert(bias != PLIM_NONE);
    plim_value *v = &p->n.g->values[bias];
    v->meta.dtype = t;
    v->packed = true;
}

static void replace_call(packer *p, const plim_node *first, const plim_node *last,
                         const layer *l)
{
    plim_assert(first < last && last[-1].n_outs == 1);
    plim_nn *n = &p->n;
    plim_graph *g = n->g;
    bool eight = p->spec->kind == PLIM_QUANT_INT8;
    uint32_t x = plim_call_input(g, first, last), result = last[-1].outs[0];
    const int release = p->spec->release;
    plim_dtype made =
                   release < PLIM_BNB_SINCE_PACKED_AS_MADE ? PLIM_F16 : made_as(p, l->weight),
               compute = p->spec->compute != PLIM_DTYPE_COUNT ? p->spec->compute
                                                              : made_as(p, l->weight);
    n->scope = first->scope;
    const uint32_t *part = pack_weight(p, l);
    if (n->st)
        return;
    g->scopes[n->scope].type = eight ? PLIM_STR("Linear8bitLt") : PLIM_STR("Linear4bit");
    if (l->bias != PLIM_NONE && !eight)
        cast_bias(p, l->bias, compute);
    const plim_named_arg in8[] = {ARG_T("input", x), ARG_T("weight", l->weight),
                                  ARG_T("scale", part[0]), ARG_T("bias", l->bias)};
    const plim_named_arg in4[] = {ARG_T("input", x),
                                  ARG_T("weight", l->weight),
                                  ARG_TS("state", part, p->spec->twice ? PLIM_QUANT_PARTS : 2),
                                  ARG_IS("size", INTS(l->out, l->in)),
                                  ARG_I("made_as", made),
                                  ARG_I("compute", compute),
                                  ARG_I("keeps_input", release < PLIM_BNB_SINCE_INPUTS_FREED),
                                  ARG_I("unpacks", release < PLIM_BNB_SINCE_PACKED_PRODUCTS),
                                  ARG_T("bias", l->bias)};
    uint32_t without = l->bias == PLIM_NONE;
    if (eight)
        plim_nn_op(n, "plimsoll.linear8bit.default", in8, PLIM_COUNT(in8) - without);
    else
        plim_nn_op(n, "plimsoll.linear4bit.default", in4, PLIM_COUNT(in4) - without);
    for (const plim_node *gone = first; gone < last; gone++)
        for (uint32_t i = 0; i < gone->n_outs; i++)
            g->values[gone->outs[i]].node = PLIM_NONE;
    if (!n->st)
        plim_call_gives(g, result);
}

/* A call of a module that is packed: exactly Linear, no class derived from it. */
static bool is_packed(packer *p, const plim_node *first, const plim_node *last, layer *l)
{
    const plim_graph *g = p->n.g;
    const plim_scope *s = &g->scopes[first->scope];
    bool conv1d = plim_str_is(s->type, "Conv1D");
    return (conv1d || plim_str_is(s->type, "Linear")) && last[-1].n_outs == 1 &&
           plim_call_input(g, first, last) != PLIM_NONE &&
           find_layer(g, first, last, conv1d, l) && !is_kept(p, s, l->weight);
}

static void replace_all(packer *p)
{
    plim_graph *g = p->n.g;
    uint32_t n, end;
    plim_node *old = plim_graph_take_nodes(g, &n);
    for (uint32_t i = 0; i < n && !p->n.st; i = end) {
        layer l;
        end = plim_call_end(old, n, i);
        if (is_packed(p, &old[i], &old[end], &l))
            replace_call(p, &old[i], &old[end], &l);
        else
            for (uint32_t k = i; k < end && !p->n.st; k++)
                if (plim_graph_add_node(g, &old[k]) == PLIM_NONE)
                    p->n.st = plim_oom(p->n.err);
    }
}

/* Which release was assumed, and that runs of an older one were not compared. */
static void say_release(packer *p)
{
    plim_graph *g = p->n.g;
    const int r = p->spec->release;
    const bool known = r <= PLIM_BNB_NEWEST, eight = p->spec->kind == PLIM_QUANT_INT8;
    g->about.releases = plim_arena_append(
        g->arena, g->about.releases, ", ", "bitsandbytes %d.%d",
        (known ? r : PLIM_BNB_NEWEST) / 10000, (known ? r : PLIM_BNB_NEWEST) / 100 % 100);
    if (r != PLIM_BNB_NEWEST && (eight || r / 100 != PLIM_BNB_OLDEST / 100))
        g->about.note = plim_arena_append(
            g->arena, g->about.note, "; ", "%s",
            known ? eight ? "with int8, bitsandbytes 0.50 is counted, whatever the release"
                          : "this release of bitsandbytes was not compared with runs"
                  : "this release of bitsandbytes is not known: 0.50 is counted");
    if (!g->about.releases.p || !g->about.note.p)
        p->n.st = plim_oom(p->n.err);
}

static void add_note(packer *p)
{
    plim_assert(p->n_made > 0);
    plim_graph *g = p->n.g;
    g->packed_weights = p->weights;
    g->about.note = plim_arena_printf(
        g->arena,
        "%s weights of %s modules are quantized (%s): they are listed as buffers%s" PLIM_STR_FMT,
        plim_fmt_count(p->weights).s, plim_fmt_count(p->n_made).s, kinds[p->spec->kind],
        g->about.note.n ? "; " : "", PLIM_STR_ARG(g->about.note));
    if (!g->about.note.p)
        p->n.st = plim_oom(p->n.err);
}

plim_status plim_quant_apply(plim_graph *g, const plim_quant *spec, plim_err *err)
{
    packer p = {.spec = spec, .last = PLIM_STR("")};
    plim_nn_init(&p.n, g, err);
    if (spec->twice) /* the table that each weight has a copy of: functional.py name2qmap */
        p.table = plim_nn_packed(&p.n, "bitsandbytes.name2qmap.dynamic", PLIM_F32,
                                 INTS(CODES_AGAIN));
    if (!find_kept(&p))
        return plim_oom(err);
    replace_all(&p);
    if (!p.n.st && spec->skip.n && !p.skips)
        plim_nn_fail(&p.n, PLIM_EUSAGE, "quant: no linear layer is named '" PLIM_STR_FMT "'",
                     PLIM_STR_CUT(spec->skip));
    if (!p.n.st && !p.n_made)
        plim_nn_fail(&p.n, PLIM_EUSAGE, "quant: the model has no linear layer to quantize");
    if (!p.n.st)
        add_note(&p);
    if (!p.n.st)
        say_release(&p);
    return p.n.st;
}
