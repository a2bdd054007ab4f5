/* hf_diffusers.c -- config.json of a denoiser of diffusers: which text of src/families it is.
 *
 * The file has the arguments of its class, "_class_name".  A class with several texts, one for each network of stages that is
 * known, takes the first that knows all values of the file.
 *
 * src: diffusers 0.42.1, configuration_utils.py (ConfigMixin) */
#include "import/hf/hf_diffusers.h"
#include "base/fmt.h"
#include "base/json.h"
#include "families/family.h"
#include "import/hf/hf.h"
#include "import/import.h"

extern const plim_importer plim_importer_hf;

static const char library[] = "diffusers:";

/* The first "_class_name"; empty: there is none. */
static plim_str class_in(plim_bytes b, plim_err *err)
{
    plim_json j = plim_hf_json(b, err);
    plim_str key, class = PLIM_STR("");
    if (!b.n || plim_json_peek(&j) != PLIM_JSON_OBJECT)
        return class;
    plim_json_object(&j);
    while (plim_json_member(&j, &key))
        if (plim_str_is(key, "_class_name") && !class.n)
            class = plim_hf_word(&j);
        else
            plim_json_skip(&j);
    return class;
}

static size_t after_brace(plim_bytes b)
{
    size_t at = 0;
    while (at < b.n && b.p[at] != '{')
        at++;
    return PLIM_MIN(at + 1, (size_t)b.n);
}

plim_str plim_diffusers_method(plim_arena *a, plim_bytes b, const char *method)
{
    plim_err none = PLIM_ERR_INIT;
    const size_t at = after_brace(b);
    plim_str class = class_in(b, &none), rest = {(const char *)b.p + at, (size_t)b.n - at};
    if (!*method)
        return (plim_str){(const char *)b.p, (size_t)b.n};
    return plim_arena_printf(a, "{\"_class_name\": \"" PLIM_STR_FMT "%s\", " PLIM_STR_FMT,
                             PLIM_STR_ARG(class), method, PLIM_STR_ARG(rest));
}

/* Whether a text is of that class: "diffusers:UNet2DConditionModel.sdxl". */
static bool is_of(const plim_family *f, plim_str class)
{
    const size_t n = sizeof library - 1;
    const char *type = f->model_type;
    return !strncmp(type, library, n) && strlen(type + n) >= class.n &&
           !memcmp(type + n, class.p, class.n) &&
           (!type[n + class.n] || type[n + class.n] == '.');
}

static plim_str named_text(plim_arena *a, const plim_family *f, plim_bytes b)
{
    const size_t at = after_brace(b);
    return plim_arena_printf(a, "{\"model_type\": \"%s\", %.*s", f->model_type,
                             (int)(b.n - at), (const char *)b.p + at);
}

static plim_status refuse_class(plim_arena *a, plim_str class, plim_err *err)
{
    plim_buf known;
    plim_buf_init(&known, a);
    for (uint32_t i = 0; i < plim_family_count(); i++) {
        const char *type = plim_family_at(i)->model_type;
        if (!strncmp(type, library, sizeof library - 1))
            plim_buf_printf(&known, "%s%s", known.n ? ", " : "", type + sizeof library - 1);
    }
    return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                     "'_class_name': '" PLIM_STR_FMT "' is none of the classes that are built "
                     "in: " PLIM_STR_FMT,
                     (int)PLIM_MIN(class.n, (size_t)60), class.p,
                     PLIM_STR_ARG(plim_buf_str(&known)));
}

/* The file as one that names its model type. */
static plim_status as_hf(const plim_source *s, plim_arena *a, plim_source *out, plim_err *err)
{
    plim_str class = class_in(s->bytes, err);
    plim_status st = PLIM_EUNSUPPORTED;
    plim_err why = PLIM_ERR_INIT;
    uint32_t n = 0;
    if (s->bytes.n > INT32_MAX)
        return plim_fail(err, PLIM_ERANGE, 0, "larger than any config.json");
    for (uint32_t i = 0; i < plim_family_count() && st; i++) {
        const plim_family *f = plim_family_at(i);
        plim_family_model *m;
        if (!is_of(f, class))
            continue;
        plim_str text = named_text(a, f, s->bytes);
        if (!text.p)
            return plim_oom(err);
        n++;
        why = (plim_err)PLIM_ERR_INIT;
        st = plim_family_open(a, f, text, &m, &why);
        if (st && st != PLIM_EUNSUPPORTED)
            break;
        *out = *s;
        out->bytes = (plim_bytes){.p = (const uint8_t *)text.p, .n = text.n};
    }
    if (!n)
        return refuse_class(a, class, err);
    if (st && n > 1)
        return plim_fail(err, st, why.at,
                         "none of the %" PRIu32
                         " networks of this class that are built in: %s",
                         n, why.msg);
    return st ? plim_fail(err, st, why.at, "%s", why.msg) : PLIM_OK;
}

/* An autoencoder whose caller did not say which half of it runs: the decoder, in inference. */
static plim_status check_half(plim_graph *g, const plim_source *s, const plim_binding *bind,
                              plim_err *err)
{
    plim_str class = class_in(s->bytes, err);
    if (memchr(class.p, '.', class.n) ||
        !plim_str_ends(g->about.model_type, PLIM_STR(".decode")))
        return PLIM_OK;
    if (bind && !bind->infer)
        return plim_fail(
            err, PLIM_EUNSUPPORTED, 0,
            "training of an autoencoder is not known; --infer counts its decoder");
    return plim_graph_leave_out(g, PLIM_STR("only the decoder runs")) ? PLIM_OK
                                                                      : plim_oom(err);
}

/* What Qwen-Image keeps from step to step in variables of its modules. */
static plim_status check_kept(plim_graph *g, plim_err *err)
{
    return !plim_str_starts(g->about.model_type, "diffusers:QwenImage") ||
                   plim_graph_leave_out(g, PLIM_STR("rotary tables that are kept from step to "
                                                    "step, some MiB, are not counted"))
               ? PLIM_OK
               : plim_oom(err);
}

static plim_status diffusers_read(plim_graph *g, const plim_source *s,
                                  const plim_binding *bind, plim_err *err)
{
    plim_source as;
    PLIM_TRY(as_hf(s, g->arena, &as, err));
    PLIM_TRY(plim_importer_hf.read(g, &as, bind, err));
    g->about.format = PLIM_STR("diffusers config");
    PLIM_TRY(check_kept(g, err));
    return check_half(g, s, bind, err);
}

static plim_status diffusers_list(plim_inventory *v, const plim_source *s, plim_err *err)
{
    plim_source as;
    PLIM_TRY(as_hf(s, v->arena, &as, err));
    PLIM_TRY(plim_importer_hf.list(v, &as, err));
    v->format = PLIM_STR("diffusers config");
    return PLIM_OK;
}

static int diffusers_probe(plim_bytes b)
{
    plim_err none = PLIM_ERR_INIT;
    return class_in(b, &none).n ? 80 : 0;
}

const plim_importer plim_importer_diffusers = {
    .name = "diffusers",
    .doc = "config.json of denoisers of diffusers: transformers and UNets",
    .src = "diffusers 0.42.1, configuration_utils.py; docs/formats/diffusers.md",
    .gives = "graph, parameters",
    .probe = diffusers_probe,
    .read = diffusers_read,
    .built = true,
    .list = diffusers_list,
};
