/* hf_timm.c -- config.json of a page of timm's on the hub: which network, for how many classes, of which images.  src/families
 * has the networks.
 *
 * src: timm 1.0.31, models/_hub.py (load_model_config_from_hf), models/_builder.py (build_model_with_cfg) */
#include "base/fmt.h"
#include "base/json.h"
#include "families/family.h"
#include "import/hf/hf.h"
#include "import/import.h"

extern const plim_importer plim_importer_hf;

typedef struct timm_keys {
    plim_str pool;
    int64_t classes;     /* below 0: those of the network */
    int64_t size[3];     /* channels, height, width */
    bool counted, sized; /* whether there are classes, and sizes */
} timm_keys;

typedef struct timm_file {
    plim_str architecture;
    timm_keys keys;
    bool args; /* its class gets arguments of its own */
} timm_file;

static void read_size(plim_json *j, timm_keys *f)
{
    int n = 0;
    plim_json_array(j);
    for (; plim_json_item(j); n++)
        if (n < 3)
            f->size[n] = plim_json_i64(j);
        else
            plim_json_skip(j);
    f->sized = n == 3;
}

static void read_key(plim_json *j, plim_str key, timm_keys *f)
{
    if (plim_str_is(key, "num_classes") && plim_json_peek(j) != PLIM_JSON_NULL) {
        f->classes = plim_json_i64(j);
        f->counted = true;
    } else if (plim_str_is(key, "global_pool")) {
        f->pool = plim_hf_word(j);
    } else if (plim_str_is(key, "input_size") && plim_json_peek(j) != PLIM_JSON_NULL) {
        read_size(j, f);
    } else {
        plim_json_skip(j);
    }
}

static bool is_empty(plim_json *j)
{
    plim_str key;
    bool empty = true;
    if (plim_json_peek(j) != PLIM_JSON_OBJECT) {
        empty = plim_json_peek(j) == PLIM_JSON_NULL;
        plim_json_skip(j);
        return empty;
    }
    plim_json_object(j);
    for (; plim_json_member(j, &key); empty = false)
        plim_json_skip(j);
    return empty;
}

/* Sizes are those of "pretrained_cfg", or of a file without one; the file's own classes come first. */
static plim_status read_file(plim_bytes b, timm_file *f, plim_err *err)
{
    plim_json j = plim_hf_json(b, err);
    plim_str key;
    timm_keys own = {.pool = PLIM_STR(""), .classes = -1}, inner = own;
    bool has_inner = false;
    *f = (timm_file){.architecture = PLIM_STR("")};
    plim_json_object(&j);
    while (plim_json_member(&j, &key)) {
        if (plim_str_is(key, "architecture")) {
            f->architecture = plim_hf_word(&j);
        } else if (plim_str_is(key, "model_args")) {
            f->args = !is_empty(&j);
        } else if (plim_str_is(key, "pretrained_cfg")) {
            has_inner = true;
            plim_json_object(&j);
            while (plim_json_member(&j, &key))
                read_key(&j, key, &inner);
        } else {
            read_key(&j, key, &own);
        }
    }
    f->keys = has_inner ? inner : own;
    if (own.counted)
        f->keys.classes = own.classes;
    return plim_json_end(&j);
}

/* What it says as keys of the network. */
static plim_status keys_of(const timm_file *f, plim_arena *a, plim_str *out, plim_err *err)
{
    const timm_keys *k = &f->keys;
    if (!f->architecture.n)
        return plim_fail(err, PLIM_EFORMAT, 0, "'architecture' is not a name");
    plim_buf keys;
    plim_str name = plim_arena_printf(a, "timm:" PLIM_STR_FMT,
                                      (int)PLIM_MIN(f->architecture.n, (size_t)PLIM_NAME_MAX),
                                      f->architecture.p);
    if (!name.p)
        return plim_oom(err);
    if (!plim_family_find(name, PLIM_STR("")))
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "'" PLIM_STR_FMT
                         "' is not one of the networks of timm that are built in ('plimsoll "
                         "models kind=vision' lists them); give its name, '" PLIM_STR_FMT
                         "', and a Python with timm may build it",
                         PLIM_STR_ARG(name), PLIM_STR_ARG(name));
    if (f->args)
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "'model_args': what they change in '" PLIM_STR_FMT "' is not known",
                         PLIM_STR_ARG(name));
    if (!k->classes)
        return plim_fail(
            err, PLIM_EUNSUPPORTED, 0,
            "'num_classes' is 0: networks without their classifier are not known");
    if (k->sized && k->size[1] != k->size[2])
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "'input_size' is of %" PRId64 " x %" PRId64
                         " pixels, and only squares are known",
                         k->size[1], k->size[2]);
    plim_buf_init(&keys, a);
    plim_buf_printf(&keys, "{\"model_type\": \"" PLIM_STR_FMT "\"", PLIM_STR_ARG(name));
    if (k->classes > 0)
        plim_buf_printf(&keys, ", \"num_classes\": %" PRId64, k->classes);
    if (k->sized)
        plim_buf_printf(&keys, ", \"in_chans\": %" PRId64 ", \"img_size\": %" PRId64,
                        k->size[0], k->size[1]);
    if (k->pool.n)
        plim_buf_printf(&keys, ", \"global_pool\": \"" PLIM_STR_FMT "\"",
                        (int)PLIM_MIN(k->pool.n, (size_t)40), k->pool.p);
    plim_buf_printf(&keys, "}");
    *out = plim_buf_str(&keys);
    return keys.unput ? plim_oom(err) : PLIM_OK;
}

/* The file as one that names its model type. */
static plim_status as_hf(const plim_source *s, plim_arena *a, plim_source *out, plim_err *err)
{
    timm_file f;
    plim_str keys = PLIM_STR("");
    PLIM_TRY(read_file(s->bytes, &f, err));
    PLIM_TRY(keys_of(&f, a, &keys, err));
    *out = *s;
    out->bytes = (plim_bytes){.p = (const uint8_t *)keys.p, .n = keys.n};
    return PLIM_OK;
}

static plim_status timm_read(plim_graph *g, const plim_source *s, const plim_binding *bind,
                             plim_err *err)
{
    plim_source named;
    PLIM_TRY(as_hf(s, g->arena, &named, err));
    PLIM_TRY(plim_importer_hf.read(g, &named, bind, err));
    g->about.format = PLIM_STR("timm config");
    return PLIM_OK;
}

static plim_status timm_list(plim_inventory *v, const plim_source *s, plim_err *err)
{
    plim_source named;
    PLIM_TRY(as_hf(s, v->arena, &named, err));
    PLIM_TRY(plim_importer_hf.list(v, &named, err));
    v->format = PLIM_STR("timm config");
    return PLIM_OK;
}

/* An object with "architecture", and without a model type. */
static int timm_probe(plim_bytes b)
{
    plim_err none = PLIM_ERR_INIT;
    plim_json j = plim_hf_json(b, &none);
    plim_str key;
    bool named = false, known = false;
    if (!b.n || plim_json_peek(&j) != PLIM_JSON_OBJECT)
        return 0;
    plim_json_object(&j);
    while (plim_json_member(&j, &key)) {
        if (plim_str_is(key, "model_type") || plim_str_is(key, "architectures"))
            return 0;
        named |= plim_str_is(key, "architecture");
        known |= plim_str_is(key, "pretrained_cfg") || plim_str_is(key, "num_features") ||
                 plim_str_is(key, "num_classes");
        plim_json_skip(&j);
    }
    return named && known ? 70 : 0;
}

const plim_importer plim_importer_timm = {
    .name = "timm",
    .doc = "config.json of timm's networks on the hub",
    .src = "timm 1.0.31, models/_hub.py; docs/formats/timm.md",
    .gives = "graph, parameters",
    .probe = timm_probe,
    .read = timm_read,
    .built = true,
    .list = timm_list,
};
