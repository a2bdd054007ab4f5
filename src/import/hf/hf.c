/* hf.c -- see hf.h. */
#include "import/hf/hf.h"

#include "base/json.h"
#include "families/family.h"
#include "import/hf/hf_encoder.h"
#include "import/hf/hf_images.h"
#include "import/hf/hf_quant.h"

/* ---- what every file says ------------------------------------------------------- */

typedef struct head {
    plim_str model_type, architecture, dtype, quantization;
    plim_str packing;   /* quantization_config, as written; quantization is its method */
    plim_str inner;     /* the model_type of a text_config, or "" */
    plim_str text;      /* that object, as written */
    plim_str attention; /* as with attn_implementation, or "" */
    int version; /* of transformers, which wrote the file; PLIM_HF_NEWEST if that does not matter */
    bool unpacked; /* built without its quantization_config */
    bool use_cache;
} head;

/* A string; "" for null. */
static plim_str word_of(plim_json *j, plim_str key)
{
    if (plim_json_peek(j) == PLIM_JSON_STRING)
        return plim_json_str(j);
    if (plim_json_peek(j) != PLIM_JSON_NULL)
        plim_hf_expected(j, key, "a string");
    plim_json_skip(j);
    return PLIM_STR("");
}

/* The first of a list of strings; "" for null. */
static plim_str first_word(plim_json *j, plim_str key)
{
    static const char expected[] = "a list of strings";
    const plim_json at = *j;
    plim_str first = PLIM_STR("");
    if (plim_json_peek(j) == PLIM_JSON_NULL) {
        plim_json_skip(j);
        return first;
    }
    bool list = plim_json_peek(j) == PLIM_JSON_ARRAY;
    if (list)
        plim_json_array(j);
    for (uint32_t i = 0; list && plim_json_item(j); i++) {
        list = plim_json_peek(j) == PLIM_JSON_STRING;
        plim_str w = plim_hf_word(j);
        first = i ? first : w;
    }
    if (!list && !j->bad) {
        *j = at;
        plim_hf_expected(j, key, expected);
    }
    return first;
}

/* false for null, as to Python */
static bool read_flag(plim_json *j, plim_str key)
{
    if (plim_json_peek(j) == PLIM_JSON_BOOL)
        return plim_json_bool(j);
    if (plim_json_peek(j) != PLIM_JSON_NULL)
        plim_hf_expected(j, key, "true or false");
    plim_json_skip(j);
    return false;
}

/* The word under `name` in an object; "" if there is none, or null in its place.  *raw: the value as
 * written; "" for null. */
static plim_str word_in(plim_json *j, plim_str outer, const char *name, plim_str *raw)
{
    plim_str key, found = PLIM_STR("");
    plim_json again = *j;
    bool null = plim_json_peek(j) == PLIM_JSON_NULL;
    if (null) {
        plim_json_skip(j);
    } else if (plim_json_peek(j) != PLIM_JSON_OBJECT) {
        plim_hf_expected(j, outer, "an object");
    } else {
        plim_json_object(j);
        while (plim_json_member(j, &key)) {
            bool is = plim_str_is(key, name);
            plim_str w = is ? word_of(j, key) : plim_hf_word(j);
            found = is ? w : found;
        }
    }
    *raw = null || j->bad ? PLIM_STR("") : plim_json_raw(&again);
    return found;
}

/* Of a model of several parts whose file says it of the text model alone: its checkpoint is in that type, and loading asks
 * the checkpoint. */
static plim_str dtype_in(plim_str part)
{
    plim_str key, found = PLIM_STR("");
    plim_json j;
    plim_json_init(&j, part, NULL);
    j.lax = true;
    plim_json_object(&j);
    while (plim_json_member(&j, &key)) {
        const plim_str word = plim_hf_word(&j);
        found = plim_str_is(key, "dtype") || plim_str_is(key, "torch_dtype") ? word : found;
    }
    return found;
}

/* The release that the model is built after, unless the user asks for one: "5.17.0" as 517; the newest of an earlier
 * or a later one, and of what is not a version.  Files of earlier ones are all over the hub, and read with newer ones. */
static int version_of(plim_str word)
{
    int64_t part[2] = {0, 0};
    size_t i = 0;
    for (int k = 0; k < 2; k++, i++)
        for (; i < word.n && word.p[i] >= '0' && word.p[i] <= '9' && part[k] < 100; i++)
            part[k] = 10 * part[k] + (word.p[i] - '0');
    const int64_t version = part[1] < 100 ? 100 * part[0] + part[1] : 0;
    return version >= PLIM_HF_OLDEST_FILE && version < PLIM_HF_NEWEST ? (int)version
                                                                      : PLIM_HF_NEWEST;
}

static plim_status read_head(plim_bytes b, head *out, plim_err *err)
{
    plim_json j = plim_hf_json(b, err);
    plim_str key;
    const plim_str none = PLIM_STR("");
    *out = (head){.model_type = none,
                  .architecture = none,
                  .dtype = none,
                  .quantization = none,
                  .packing = none,
                  .inner = none,
                  .text = none,
                  .attention = none,
                  .version = PLIM_HF_NEWEST,
                  .use_cache = true};
    plim_json_object(&j);
    while (plim_json_member(&j, &key)) {
        if (plim_str_is(key, "model_type"))
            out->model_type = word_of(&j, key);
        else if (plim_str_is(key, "architectures"))
            out->architecture = first_word(&j, key);
        else if (plim_str_is(key, "dtype") || plim_str_is(key, "torch_dtype"))
            out->dtype = word_of(&j, key);
        else if (plim_str_is(key, "transformers_version"))
            out->version = version_of(plim_hf_word(&j));
        else if (plim_str_is(key, "use_cache"))
            out->use_cache = read_flag(&j, key);
        else if (plim_str_is(key, "attn_implementation") ||
                 plim_str_is(key, "_attn_implementation"))
            out->attention = plim_hf_word(&j);
        else if (plim_str_is(key, "quantization_config"))
            out->quantization = word_in(&j, key, "quant_method", &out->packing);
        else if (plim_str_is(key, "text_config"))
            out->inner = word_in(&j, key, "model_type", &out->text);
        else
            plim_json_skip(&j);
    }
    if (!j.bad && !out->dtype.n && out->text.n)
        out->dtype = dtype_in(out->text);
    return plim_json_end(&j);
}

/* ---- finding the family --------------------------------------------------------------- */

/* The file's model type, or that of its class; NULL: not known. */
static const plim_hf_family *family_of(const head *hd, const plim_hf_group **group)
{
    return hd->model_type.n ? plim_hf_find(hd->model_type, group)
                            : plim_hf_find_class(hd->architecture, group);
}

/* The type that the text model in a file is built as, which may be the file itself; "": it is not known. */
static plim_str text_type(const head *hd)
{
    const plim_hf_group *group;
    plim_str type = hd->inner.n ? hd->inner : hd->model_type, as = plim_hf_text_type(type);
    if (!as.n && hd->inner.n)
        as = type;
    bool known = as.n && (plim_hf_find(as, &group) || plim_family_find(as, PLIM_STR("")));
    return known ? as : PLIM_STR("");
}

/* The type that is built: the file's, or that of the text model in it; else "". */
static plim_str built_type(const head *hd)
{
    const plim_hf_group *group;
    const plim_hf_family *f = family_of(hd, &group);
    return f ? plim_str_of(f->model_type) : text_type(hd);
}

static plim_status unknown_type(const head *hd, plim_err *err)
{
    plim_str type = hd->model_type.n ? hd->model_type : hd->architecture;
    return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                     "model_type '" PLIM_STR_FMT
                     "' is not supported (docs/formats/huggingface.md lists those that are)",
                     (int)PLIM_MIN(type.n, (size_t)40), type.p);
}

/* ---- the model ---------------------------------------------------------------------------- */

static void check_head(plim_hf *h, const head *hd)
{
    plim_dtype t;
    if (hd->architecture.n && !plim_item_has(h->family->classes, hd->architecture))
        plim_nn_fail(&h->n, PLIM_EUNSUPPORTED,
                     "class '" PLIM_STR_FMT
                     "' is not supported: for this model type plimsoll builds %s",
                     (int)PLIM_MIN(hd->architecture.n, (size_t)60), hd->architecture.p,
                     h->family->classes);
    if (hd->dtype.n && !plim_str_is(hd->dtype, "auto")) {
        if (!plim_dtype_find(hd->dtype, &t) || !plim_is_float(t))
            plim_nn_fail(&h->n, PLIM_EUNSUPPORTED,
                         "dtype '" PLIM_STR_FMT "' is not a type of parameters",
                         (int)PLIM_MIN(hd->dtype.n, (size_t)40), hd->dtype.p);
        else
            h->n.dtype = t;
    }
}

/* Rejects a shape for an input that the model does not have. */
static void check_inputs(plim_hf *h)
{
    const plim_graph *g = h->n.g;
    for (uint32_t i = 0; i < h->bind->n_inputs && !h->n.st; i++) {
        plim_str name = h->bind->inputs[i].name;
        bool known = !name.n;
        for (uint32_t k = 0; k < g->n_inputs; k++)
            known |= plim_str_eq(name, g->values[g->inputs[k]].name);
        if (!known)
            plim_nn_fail(&h->n, PLIM_EUSAGE, "the model has no input '" PLIM_STR_FMT "'",
                         (int)PLIM_MIN(name.n, (size_t)PLIM_NAME_MAX), name.p);
    }
}

/* --dim batch=N and seq=N: the open sizes. */
static plim_status named_sizes(plim_binding *b, plim_err *err)
{
    for (uint32_t i = 0; i < b->n_dims; i++) {
        plim_str name = b->dims[i].name;
        if (plim_str_is(name, "batch"))
            b->batch = b->dims[i].value;
        else if (plim_str_is(name, "seq"))
            b->seq = b->dims[i].value;
        else
            return plim_fail(err, PLIM_EUSAGE, 0,
                             "the model has no open size '" PLIM_STR_FMT
                             "', only 'batch' and 'seq'",
                             (int)PLIM_MIN(name.n, (size_t)40), name.p);
    }
    return PLIM_OK;
}

/* The text of a model, unless C builds it; of a type without C any of its texts, whose class is checked then. */
static const plim_family *data_of(const head *hd, const plim_hf_family *known)
{
    if (known && (!hd->architecture.n || plim_item_has(known->classes, hd->architecture)))
        return NULL;
    const plim_family *f = plim_family_find(hd->model_type, hd->architecture);
    return f || known ? f : plim_family_find(hd->model_type, PLIM_STR(""));
}

static plim_status build_model(plim_graph *g, plim_bytes b, const head *hd,
                               const plim_binding *bind, plim_err *err);

/* A multimodal model; only its text model is known.  b: of the file. */
static plim_status build_text(plim_graph *g, plim_bytes b, const head *outer,
                              const plim_binding *bind, plim_err *err)
{
    if (outer->inner.n)
        b = (plim_bytes){.p = (const uint8_t *)outer->text.p, .n = outer->text.n};
    head hd;
    plim_status st = read_head(b, &hd, err);
    if (st)
        return st;
    hd.architecture = PLIM_STR("");
    hd.model_type = text_type(outer);
    if (!hd.dtype.n)
        hd.dtype = outer->dtype;
    if (!hd.packing.n)
        hd.packing = outer->packing;
    if (!hd.attention.n)
        hd.attention = outer->attention;
    hd.version = outer->version;
    hd.unpacked = outer->unpacked;
    if ((st = build_model(g, b, &hd, bind, err)) != 0)
        return st;
    plim_str as = plim_str_eq(hd.model_type, outer->inner) ? PLIM_STR("") : hd.model_type;
    plim_str says = plim_arena_printf(
        g->arena,
        "only the text model of this '" PLIM_STR_FMT "' is counted%s" PLIM_STR_FMT
        "; its other parts, such as encoders of images or sound, are left out",
        (int)PLIM_MIN(outer->model_type.n, (size_t)40), outer->model_type.p,
        as.n ? ", as that of " : "", PLIM_STR_ARG(as));
    return says.p && plim_graph_leave_out(g, says) ? PLIM_OK : plim_oom(err);
}

static bool wants_cache(const plim_hf_group *group, const head *hd, plim_caching wanted)
{
    return group->caches &&
           (wanted == PLIM_CACHING_ON || (wanted == PLIM_CACHING_CONFIG && hd->use_cache));
}

/* The package, or the same kernels from the hub. */
static bool names_flash(plim_str attention)
{
    return plim_str_is(attention, "flash_attention_2") ||
           plim_str_is(attention, "kernels-community/flash-attn2");
}

/* That of the file, if none is asked for. */
static plim_attention attention_of(const head *hd, plim_attention asked)
{
    if (asked != PLIM_ATTENTION_DEFAULT)
        return asked;
    return plim_str_is(hd->attention, "eager")  ? PLIM_ATTENTION_EAGER
           : plim_str_is(hd->attention, "sdpa") ? PLIM_ATTENTION_SDPA
           : names_flash(hd->attention)         ? PLIM_ATTENTION_FLASH
                                                : PLIM_ATTENTION_DEFAULT;
}

static plim_status add_note(plim_graph *g, plim_str says, plim_err *err)
{
    if (says.p)
        g->about.note =
            plim_arena_append(g->arena, g->about.note, "; ", PLIM_STR_FMT, PLIM_STR_ARG(says));
    return says.p && g->about.note.p ? PLIM_OK : plim_oom(err);
}

/* Whether it is known how the class calls flash-attn. */
static bool knows_flash(const plim_family *data, int version, const plim_binding *b)
{
    return !data && version >= PLIM_HF_OLDEST_FILE && !b->cache_room;
}

/* What is not known of flash-attn, or is counted at its highest. */
static plim_status note_flash(plim_graph *g, const plim_binding *b, plim_err *err)
{
    PLIM_TRY(add_note(g,
                      PLIM_STR("what the kernels of flash-attn 2.8 take is known from its "
                               "sources, and was not compared with runs of them"),
                      err));
    if (b->padded)
        return add_note(g,
                        PLIM_STR("of the padding, which flash-attn leaves out, one token is "
                                 "counted: with more it takes less"),
                        err);
    if (b->packed && b->batch <= 1)
        return add_note(g,
                        PLIM_STR("two sequences are counted in the row: each one more takes "
                                 "fp32 gradients of 128 more queries in backward"),
                        err);
    return PLIM_OK;
}

/* Says that the file names other kernels: these hold what a fused kernel of sdpa holds, the output and a number for
 * each row, but their temporaries differ. */
static plim_status note_kernel(plim_graph *g, const head *hd, const plim_binding *b,
                               plim_attention asked, plim_err *err)
{
    if (plim_str_is(g->about.attention, "flash"))
        return note_flash(g, b, err);
    if (asked != PLIM_ATTENTION_DEFAULT || !g->about.attention.n || !hd->attention.n ||
        plim_str_is(hd->attention, "eager") || plim_str_is(hd->attention, "sdpa"))
        return PLIM_OK;
    return add_note(g,
                    plim_arena_printf(g->arena,
                                      "the attention of the file, '" PLIM_STR_FMT
                                      "', is counted as " PLIM_STR_FMT,
                                      (int)PLIM_MIN(hd->attention.n, (size_t)40),
                                      hd->attention.p, PLIM_STR_ARG(g->about.attention)),
                    err);
}

/* ---- the release -------------------------------------------------------------------------- */

/* Fails if the rules of the release that is asked for are not known for this model type. */
static plim_status check_release(const plim_binding *b, const char *model_type, bool data,
                                 plim_err *err)
{
    const int asked = b->transformers;
    const bool old = asked && asked < (data ? PLIM_HF_NEWEST : PLIM_HF_OLDEST_FILE);
    if (!old || (!data && plim_hf_release_known(plim_str_of(model_type))))
        return PLIM_OK;
    return plim_fail(
        err, PLIM_EUNSUPPORTED, 0,
        "model_type '%s' is not known as transformers %d.%d has it, only from %d.%d on",
        model_type, asked / 100, asked % 100,
        (data ? PLIM_HF_NEWEST : PLIM_HF_OLDEST_FILE) / 100,
        (data ? PLIM_HF_NEWEST : PLIM_HF_OLDEST_FILE) % 100);
}

/* Says which release the model is built after, and whether that is the one that was asked for. */
static plim_status note_release(plim_graph *g, const plim_binding *b, int built, plim_err *err)
{
    const int asked = b->transformers;
    const bool later = asked > PLIM_HF_NEWEST;
    g->about.transformers = asked ? PLIM_MIN(asked, PLIM_HF_NEWEST) : built;
    g->about.releases =
        plim_arena_printf(g->arena, "transformers %d.%d", g->about.transformers / 100,
                          g->about.transformers % 100);
    if (!g->about.releases.p)
        return plim_oom(err);
    if (!later && (!asked || plim_hf_release_compared(asked, g->about.model_type)))
        return PLIM_OK;
    g->about.note =
        later ? plim_arena_append(g->arena, g->about.note, "; ",
                                  "transformers %d.%d is not known: the model is built as in "
                                  "%d.%d",
                                  asked / 100, asked % 100, PLIM_HF_NEWEST / 100,
                                  PLIM_HF_NEWEST % 100)
              : plim_arena_append(g->arena, g->about.note, "; ",
                                  "transformers %d.%d was not compared with runs: what is "
                                  "known of releases before and after it is counted",
                                  asked / 100, asked % 100);
    return g->about.note.p ? PLIM_OK : plim_oom(err);
}

/* ---- a model type that is data ----------------------------------------------------------- */

/* What models of families are not built with; NULL: nothing of it is asked. */
static const char *unknown_to_families(const plim_binding *b, const head *hd)
{
    const struct {
        bool asked;
        const char *what;
    } unknown[] = {
        {hd->packing.n || b->packing.n, "quantized weights"},
        {b->part.contexts > 1 || b->part.experts > 1 || b->part.weights > 1,
         "a part of the model on each card"},
        {b->virtual_tokens, "virtual tokens"},
        {b->attention == PLIM_ATTENTION_FLASH, "attention flash"},
        {b->prompts || b->cache_room, "prompts of generate()"},
        {b->padded || b->packed || b->positions_are_inputs, "a mask or positions as inputs"}};
    for (size_t i = 0; i < PLIM_COUNT(unknown); i++)
        if (unknown[i].asked)
            return unknown[i].what;
    return NULL;
}

/* Whether the text model in it is built alone: with what a family does not know, C may know it. */
static bool wants_text(const head *hd, const plim_binding *b)
{
    const plim_hf_group *group;
    const plim_str as = text_type(hd);
    return plim_hf_find(as, &group) && !plim_str_eq(as, hd->model_type) &&
           (b->images.apart || unknown_to_families(b, hd));
}

/* What it holds depends on what the images show. */
static plim_status leave_loss_out(plim_graph *g, plim_str loss, plim_err *err)
{
    plim_str says =
        plim_arena_printf(g->arena,
                          PLIM_STR_FMT ", which depends on what images show, is not "
                                       "counted: a sum of outputs stands for it",
                          PLIM_STR_ARG(loss));
    return says.p && plim_graph_leave_out(g, says) ? PLIM_OK : plim_oom(err);
}

/* keeps: what its layers keep of their tokens is asked, too. */
static plim_status build_family(plim_graph *g, plim_bytes b, const head *hd,
                                const plim_family *f, plim_binding *bind, bool keeps,
                                plim_err *err)
{
    plim_family_model *m = NULL;
    plim_status st = plim_graph_init(g, g->arena, err);
    if (!st)
        st = named_sizes(bind, err);
    if (!st)
        st =
            plim_family_open(g->arena, f, (plim_str){(const char *)b.p, (size_t)b.n}, &m, err);
    if (st)
        return st;
    plim_hf_family row = {.model_type = f->model_type, .classes = plim_family_class(m).p};
    plim_hf h = {.bind = bind, .family = &row};
    bool hard = false;
    int64_t positions = plim_family_positions(m, &hard);
    plim_nn_init(&h.n, g, err);
    h.n.infer = bind->infer;
    check_head(&h, hd);
    const char *unknown = unknown_to_families(bind, hd);
    if (unknown)
        plim_nn_fail(&h.n, PLIM_EUNSUPPORTED, "%s: not known for model_type '%s'", unknown,
                     f->model_type);
    bool reads = plim_family_reads(m);
    if (reads)
        plim_hf_tokens(&h, "input_ids", positions, hard);
    else
        plim_hf_batch(&h, plim_family_input(m));
    const int64_t text = plim_family_text(m);
    if (text)
        h.seq = bind->seq ? bind->seq : text;
    plim_family_call call = {
        .batch = h.batch,
        .seq = h.seq,
        .train = !bind->infer,
        .tokens_are_labels = bind->labels_are_inputs && reads && !plim_family_pairs(m),
        .cache =
            plim_family_caches(m) && (bind->caching == PLIM_CACHING_ON ||
                                      (bind->caching == PLIM_CACHING_CONFIG && hd->use_cache)),
        .eager = bind->attention == PLIM_ATTENTION_EAGER};
    g->denoises = text > 0;
    if (plim_family_sees(m))
        plim_hf_images(&h, m, &call);
    g->labels_are_inputs = call.tokens_are_labels;
    g->about.attention = call.eager ? PLIM_STR("eager") : plim_family_attention(m);
    if (!plim_family_attention(m).n && bind->attention != PLIM_ATTENTION_DEFAULT)
        plim_nn_fail(&h.n, PLIM_EUNSUPPORTED, "the class has no attention");
    if (bind->attention == PLIM_ATTENTION_SDPA && !plim_str_is(g->about.attention, "sdpa"))
        plim_nn_fail(&h.n, PLIM_EUNSUPPORTED, "the class has no attention 'sdpa'");
    const bool sees_only = !reads && !text;
    if (sees_only && bind->seq)
        plim_nn_fail(&h.n, PLIM_EUSAGE, "'%s' has no sequence length to set", f->model_type);
    if (!h.n.st)
        plim_family_build(&h.n, m, &call);
    for (uint32_t i = 0; i < g->n_inputs && !h.n.st; i++) {
        const plim_value *in = &g->values[g->inputs[i]];
        plim_hf_check_shape(&h, in->name.p, !i,
                            (plim_ints){in->meta.dim, (uint32_t)in->meta.rank});
    }
    if (plim_hf_crowded(&h, &call)) {
        bind->images.crowded = true;
        return build_family(g, b, hd, f, bind, keeps, err);
    }
    if (!h.n.st && keeps)
        h.n.st = plim_family_keeps(m, g, err);
    g->kv.returned = call.cache && g->kv.elements;
    check_inputs(&h);
    if (call.train && plim_family_without(m).n && !h.n.st)
        h.n.st = leave_loss_out(g, plim_family_without(m), err);
    plim_str unread = plim_family_unread(m);
    g->about.note = plim_hf_images_note(&h, m, &call);
    if (unread.n)
        g->about.note = plim_arena_append(g->arena, g->about.note, "; ",
                                          "the class reads no key " PLIM_STR_FMT,
                                          (int)PLIM_MIN(unread.n, (size_t)300), unread.p);
    const plim_str kernels = plim_family_kernels(m);
    if (kernels.n)
        g->about.note = plim_arena_append(g->arena, g->about.note, "; ",
                                          "counted without the kernels of " PLIM_STR_FMT,
                                          PLIM_STR_ARG(kernels));
    g->sizes.batch = h.batch;
    g->sizes.seq = h.seq;
    g->sizes.seq_max = h.seq_max;
    g->about.format = PLIM_STR("Hugging Face config");
    g->about.producer = plim_family_library(m);
    g->about.model_type = plim_str_of(f->model_type);
    if (!h.n.st && plim_str_starts(g->about.producer, "transformers "))
        return note_release(g, bind, PLIM_HF_NEWEST, err);
    g->about.releases = g->about.producer;
    return h.n.st;
}

static plim_status build_model(plim_graph *g, plim_bytes b, const head *hd,
                               const plim_binding *bind, plim_err *err)
{
    const plim_hf_group *group;
    plim_binding sizes = {0};
    if (bind)
        sizes = *bind;
    const plim_attention asked = sizes.attention;
    sizes.attention = attention_of(hd, asked);
    const plim_hf_family *known = family_of(hd, &group);
    const plim_family *family = data_of(hd, known);
    const bool newest = known && group->newest;
    const int built = newest ? PLIM_HF_NEWEST : hd->version;
    const int version = sizes.transformers ? sizes.transformers : built;
    if (sizes.attention == PLIM_ATTENTION_FLASH && !asked &&
        !knows_flash(family, version, &sizes))
        sizes.attention = PLIM_ATTENTION_DEFAULT;
    if (family && wants_text(hd, &sizes))
        return build_text(g, b, hd, bind, err);
    if (family) {
        PLIM_TRY(check_release(&sizes, family->model_type, true, err));
        PLIM_TRY(build_family(g, b, hd, family, &sizes, !bind || bind->infer, err));
        return note_kernel(g, hd, &sizes, asked, err);
    }
    plim_hf h = {.version = version,
                 .contexts = 1,
                 .positions = PLIM_NONE,
                 .padding = PLIM_NONE,
                 .mask = PLIM_NONE,
                 .unused = PLIM_NONE,
                 .hidden = PLIM_NONE,
                 .family = known,
                 .bind = &sizes,
                 .architecture = hd->architecture};
    if (!h.family && text_type(hd).n)
        return build_text(g, b, hd, bind, err);
    if (!h.family)
        return unknown_type(hd, err);
    PLIM_TRY(check_release(&sizes, h.family->model_type, newest, err));
    if (sizes.attention == PLIM_ATTENTION_FLASH && !knows_flash(NULL, version, &sizes))
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "attention flash: how transformers calls flash-attn is known from "
                         "%d.%d on, not of %d.%d",
                         PLIM_HF_OLDEST_FILE / 100, PLIM_HF_OLDEST_FILE % 100, version / 100,
                         version % 100);
    h.caching = wants_cache(group, hd, sizes.caching);
    h.eager =
        sizes.attention == PLIM_ATTENTION_EAGER ||
        !plim_hf_release_follows(h.version, PLIM_HF_SDPA, plim_str_of(h.family->model_type));
    h.flash = sizes.attention == PLIM_ATTENTION_FLASH;
    plim_status st = plim_graph_init(g, g->arena, err);
    if (!group->caches || group->encodes) /* virtual tokens are for decoders */
        sizes.virtual_tokens = 0;
    if (!st)
        st = named_sizes(&sizes, err);
    void *config = st ? NULL : plim_arena_new(g->arena, 1, group->size);
    if (!config)
        return st ? st : plim_oom(err);
    plim_nn_init(&h.n, g, err);
    h.n.infer = h.bind->infer;
    plim_hf_read_model(&h, (plim_str){(const char *)b.p, (size_t)b.n}, group, config);
    if (h.n.st)
        return h.n.st;
    check_head(&h, hd);
    if (hd->packing.n && sizes.packing.n)
        plim_nn_fail(&h.n, PLIM_EUSAGE,
                     "the file has a 'quantization_config' of its own: leave out 'weights'");
    plim_str packing = hd->packing.n ? hd->packing : sizes.packing;
    if (!h.n.st && packing.n && !hd->unpacked)
        plim_hf_quant_open(&h, packing);
    if (!h.n.st) {
        plim_hf_expect_layers(&h, group, config);
        group->build(&h, config);
    }
    if (!h.n.st && sizes.packing.n && !plim_hf_quant_used(&h))
        plim_nn_fail(&h.n, PLIM_EUSAGE,
                     "'weights' changes nothing: the method packs no weight of "
                     "this model");
    for (uint32_t i = 0; i < h.n_cached; i++)
        plim_nn_output(&h.n, h.cached[i]);
    check_inputs(&h);
    plim_nn_settle(&h.n);
    g->packed_weights = plim_hf_quant_weights(&h);
    g->about.note = plim_hf_quant_note(&h);
    if (!g->about.note.p)
        return plim_oom(err);
    if (h.note.n)
        PLIM_TRY(add_note(g, h.note, err));
    PLIM_TRY(note_kernel(g, hd, &sizes, asked, err));
    plim_hf_leave_unread(&h);
    g->sizes.batch = h.batch;
    g->sizes.seq = h.seq * h.contexts - sizes.virtual_tokens; /* the user's */
    g->sizes.seq_max = PLIM_MAX(h.seq_max - sizes.virtual_tokens, 0);
    g->kv.returned = h.n_cached > 0;
    g->about.format = PLIM_STR("Hugging Face config");
    g->about.producer = plim_str_of(group->src);
    g->about.model_type = plim_str_of(h.family->model_type);
    return h.n.st ? h.n.st : note_release(g, &sizes, built, err);
}

/* Packed weights have no gradients. */
static plim_status check_trained(const plim_graph *g, plim_err *err)
{
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].packed)
            return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                             "quantized weights ('" PLIM_STR_FMT
                             "') cannot be trained: use --infer",
                             PLIM_STR_ARG(g->values[i].name));
    return PLIM_OK;
}

static plim_status hf_read(plim_graph *g, const plim_source *s, const plim_binding *bind,
                           plim_err *err)
{
    head hd;
    plim_status st = read_head(s->bytes, &hd, err);
    if (!st)
        st = build_model(g, s->bytes, &hd, bind, err);
    return st || (bind && bind->infer) ? st : check_trained(g, err);
}

/* ---- what the file holds -------------------------------------------------------------------- */

static plim_status list_facts(plim_inventory *v, const head *hd, plim_err *err)
{
    const struct {
        const char *key;
        plim_str value;
    } facts[] = {{"model type", hd->model_type},
                 {"class", hd->architecture},
                 {"dtype", hd->dtype},
                 {"quantization", hd->quantization}};
    plim_status st = PLIM_OK;
    for (size_t i = 0; i < PLIM_COUNT(facts) && !st; i++)
        if (facts[i].value.n)
            st = plim_inventory_fact(v, err, facts[i].key, PLIM_STR_FMT,
                                     (int)PLIM_MIN(facts[i].value.n, (size_t)PLIM_NAME_MAX),
                                     facts[i].value.p);
    return st;
}

static plim_status list_graph(plim_inventory *v, const plim_graph *g, plim_err *err)
{
    plim_status st = plim_inventory_graph(v, g, err);
    if (!st && g->n_inputs)
        st = plim_inventory_dim(v, PLIM_STR("batch"), g->sizes.batch, err);
    const plim_meta *first = g->n_inputs ? &g->values[g->inputs[0]].meta : NULL;
    if (!st && first && first->rank == 2 && !g->sizes.audio)
        st = plim_inventory_dim(v, PLIM_STR("seq"), first->dim[1], err);
    return st;
}

/* The model cannot be built, which reading its graph reports: lists the types that can. */
static plim_status list_refusal(plim_inventory *v, plim_err *err)
{
    plim_str known = plim_hf_known_types(v->arena);
    return plim_inventory_note(v, err, "supported model types: " PLIM_STR_FMT,
                               PLIM_STR_ARG(known));
}

/* The model without its packing, which is not known. */
static plim_status list_unpacked(plim_inventory *v, const plim_source *s, head hd,
                                 plim_err *err)
{
    plim_graph g = {.arena = v->arena};
    plim_err why = PLIM_ERR_INIT;
    hd.unpacked = true;
    plim_status st = build_model(&g, s->bytes, &hd, NULL, &why);
    if (st)
        return st == PLIM_ENOMEM ? plim_oom(err) : list_refusal(v, err);
    st = list_graph(v, &g, err);
    return st ? st
              : plim_inventory_note(v, err,
                                    "parameters are listed as they are before quantization");
}

static bool is_packed(const head *hd)
{
    plim_err none = PLIM_ERR_INIT;
    head inner;
    return hd->packing.n ||
           (hd->text.n &&
            !read_head((plim_bytes){.p = (const uint8_t *)hd->text.p, .n = hd->text.n}, &inner,
                       &none) &&
            inner.packing.n);
}

static plim_status list_model(plim_inventory *v, const plim_source *s, const head *hd,
                              plim_err *err)
{
    plim_graph g = {.arena = v->arena};
    plim_err why = PLIM_ERR_INIT;
    plim_status st = build_model(&g, s->bytes, hd, NULL, &why);
    bool built = !st, packed = is_packed(hd);
    if (st && st != PLIM_EUNSUPPORTED)
        return plim_fail(err, why.code, why.at, "%s", why.msg);
    st = built ? list_graph(v, &g, err) : packed ? PLIM_OK : list_refusal(v, err);
    if (!st && built)
        st = plim_inventory_about(v, &g, err);
    if (!st)
        st = plim_hf_weights(v, built_type(hd), s, err);
    return st || v->n_items || !packed ? st : list_unpacked(v, s, *hd, err);
}

static plim_status hf_list(plim_inventory *v, const plim_source *s, plim_err *err)
{
    head hd;
    PLIM_TRY(read_head(s->bytes, &hd, err));
    v->format = PLIM_STR("Hugging Face config");
    v->producer = PLIM_STR("");
    PLIM_TRY(list_facts(v, &hd, err));
    return list_model(v, s, &hd, err);
}

/* ---- descriptor -------------------------------------------------------------------------------- */

/* A JSON object with the keys that all configurations have. */
static int hf_probe(plim_bytes b)
{
    enum { FAR = 1 << 16 };
    plim_err none = PLIM_ERR_INIT;
    plim_json j = plim_hf_json((plim_bytes){.p = b.p, .n = b.n}, &none);
    plim_str key;
    int score = 0;
    if (!b.n || plim_json_peek(&j) != PLIM_JSON_OBJECT)
        return 0;
    plim_json_object(&j);
    while (j.at < FAR && plim_json_member(&j, &key)) {
        if (plim_str_is(key, "model_type"))
            return 90;
        if (plim_str_is(key, "architectures") || plim_str_is(key, "transformers_version"))
            score = 60;
        plim_json_skip(&j);
    }
    return score;
}

const plim_importer plim_importer_hf = {
    .name = "hf",
    .doc = "Hugging Face config.json, or the folder with it: the model of transformers",
    .src = "transformers 5.23, models/*/modeling_*.py; docs/formats/huggingface.md",
    .gives = "graph, parameters",
    .probe = hf_probe,
    .read = hf_read,
    .built = true,
    .list = hf_list,
};
