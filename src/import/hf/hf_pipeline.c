/* hf_pipeline.c -- model_index.json: a pipeline of diffusers, as one graph of a step.  Encoders of text run first, then the
 * denoiser; then, in inference, the autoencoder decodes, and in training it has encoded before.  Parts beside the denoiser
 * are not trained, and stay on the card.
 *
 * The configuration of a part is in a folder of its name, or, of a model that is built in, in the place of its class.
 *
 * src: diffusers 0.42.1, pipelines/pipeline_utils.py, examples/text_to_image */
#include "base/fmt.h"
#include "base/json.h"
#include "import/hf/hf.h"
#include "import/hf/hf_diffusers.h"
#include "import/import.h"

extern const plim_importer plim_importer_hf;
extern const plim_importer plim_importer_diffusers;

typedef enum part_role { ENCODES, DENOISES, DECODES } part_role;

/* In the order of a run. */
static const struct {
    const char *name;
    part_role role;
} parts[] = {
#define PART(name, role) {name, role},
    PLIM_PIPELINE_PARTS(PART)
#undef PART
};
enum { PARTS = PLIM_COUNT(parts) };

typedef struct pipeline {
    const plim_source *s;
    plim_arena *arena;
    plim_err *err;
    plim_str class;
    struct {
        plim_str config; /* of one that is built in */
        plim_graph graph;
        bool built, here;
    } part[PARTS];
    uint32_t denoiser;
} pipeline;

const char *plim_part_at(uint32_t i) { return i < PARTS ? parts[i].name : NULL; }

/* ---- which parts it has ------------------------------------------------------------------- */

/* ["diffusers", "AutoencoderKL"], or the configuration itself; [null, null]: there is none. */
static void read_part(pipeline *p, plim_json *j, uint32_t i)
{
    plim_json at = *j;
    if (plim_json_peek(j) == PLIM_JSON_OBJECT) {
        p->part[i].config = plim_json_raw(&at);
        p->part[i].here = true;
        plim_json_skip(j);
        return;
    }
    if (plim_json_peek(j) != PLIM_JSON_ARRAY) {
        plim_json_skip(j);
        return;
    }
    int words = 0;
    plim_json_array(j);
    for (; plim_json_item(j); plim_json_skip(j))
        words += plim_json_peek(j) == PLIM_JSON_STRING;
    p->part[i].here = words >= 2;
}

static uint32_t part_at(plim_str name)
{
    uint32_t i = 0;
    while (i < PARTS && !plim_str_is(name, parts[i].name))
        i++;
    return i;
}

static plim_status read_index(pipeline *p)
{
    plim_json j = plim_hf_json(p->s->bytes, p->err);
    plim_str key;
    p->denoiser = PARTS;
    plim_json_object(&j);
    while (plim_json_member(&j, &key)) {
        uint32_t i = part_at(key);
        if (i < PARTS)
            read_part(p, &j, i);
        else if (plim_str_is(key, "_class_name"))
            p->class = plim_hf_word(&j);
        else
            plim_json_skip(&j);
    }
    PLIM_TRY(plim_json_end(&j));
    for (uint32_t i = PARTS; i-- > 0;)
        if (parts[i].role == DENOISES && p->part[i].here)
            p->denoiser = i;
    return p->denoiser < PARTS
               ? PLIM_OK
               : plim_fail(p->err, PLIM_EUNSUPPORTED, 0,
                           "'" PLIM_STR_FMT "': a pipeline without 'transformer' and 'unet'",
                           PLIM_STR_CUT(p->class));
}

/* ---- a part as a graph ---------------------------------------------------------------------- */

/* As diffusers loads it unless it is told a type: in fp32, whatever is stored. */
static plim_str in_fp32(plim_arena *a, plim_bytes b)
{
    size_t n = (size_t)b.n;
    while (n && b.p[n - 1] != '}')
        n--;
    return plim_arena_printf(a, "%.*s, \"dtype\": \"float32\"}", (int)PLIM_MAX(n, 1) - 1,
                             (const char *)b.p);
}

/* The method of the class that runs: "AutoencoderKL.decode". */
static const char *method_of(const pipeline *p, uint32_t i, bool infer)
{
    return parts[i].role != DECODES || i == p->denoiser ? "" : infer ? ".decode" : ".encode";
}

/* The pipeline of Stable Diffusion XL decodes in fp32 if its autoencoder is in fp16, unless its file says it need not. */
static plim_status note_upcast(pipeline *p, plim_graph *g, uint32_t i, plim_bytes b)
{
    if (parts[i].role != DECODES || !plim_str_starts(p->class, "StableDiffusionXL"))
        return PLIM_OK;
    plim_json j = plim_hf_json(b, p->err);
    plim_str key, says = PLIM_STR("");
    plim_json_object(&j);
    while (plim_json_member(&j, &key))
        if (plim_str_is(key, "force_upcast"))
            says = plim_json_raw(&j);
        else
            plim_json_skip(&j);
    return plim_str_is(says, "false") ||
                   plim_graph_leave_out(g, PLIM_STR("in fp16 the autoencoder decodes in fp32, "
                                                    "which is not counted"))
               ? PLIM_OK
               : plim_oom(p->err);
}

static plim_status build_bytes(pipeline *p, uint32_t i, plim_bytes b, const plim_binding *bind,
                               plim_err *err)
{
    plim_graph *g = &p->part[i].graph;
    plim_source s = *p->s;
    plim_str text;
    if (!b.n || b.n > INT32_MAX)
        return plim_fail(err, PLIM_EFORMAT, 0, "no config.json");
    const bool ours = plim_importer_diffusers.probe(b) > 0;
    text = ours ? plim_diffusers_method(p->arena, b, method_of(p, i, bind->infer))
                : in_fp32(p->arena, b);
    if (!text.p)
        return plim_oom(err);
    s.bytes = (plim_bytes){.p = (const uint8_t *)text.p, .n = text.n};
    *g = (plim_graph){.arena = p->arena};
    PLIM_TRY((ours ? &plim_importer_diffusers : &plim_importer_hf)->read(g, &s, bind, err));
    return bind->infer ? note_upcast(p, g, i, b) : PLIM_OK;
}

static plim_status build_part(pipeline *p, uint32_t i, const plim_binding *bind, plim_err *err)
{
    plim_source file = {.path = NULL};
    plim_str path = plim_arena_printf(p->arena, "%s/config.json", parts[i].name);
    if (!path.p)
        return plim_oom(err);
    plim_bytes b = {.p = (const uint8_t *)p->part[i].config.p, .n = p->part[i].config.n};
    plim_status st = b.n ? PLIM_OK : plim_source_under(p->s, path, p->arena, &file, err);
    if (!st)
        st = build_bytes(p, i, b.n ? b : file.bytes, bind, err);
    plim_source_close(&file);
    p->part[i].built = !st;
    if (st)
        plim_err_prefix(err, "%s: ", path.p);
    return st;
}

/* What it holds is not known. */
static plim_status leave_part(pipeline *p, plim_graph *g, uint32_t i, const plim_err *why)
{
    plim_str says =
        plim_arena_printf(p->arena, "'%s' is left out (%s)", parts[i].name, why->msg);
    return says.p && plim_graph_leave_out(g, says) ? PLIM_OK : plim_oom(p->err);
}

/* Encoders of text get as many tokens as the denoiser, or as their table has. */
static plim_status build_beside(pipeline *p, plim_graph *g, uint32_t i,
                                const plim_binding *bind)
{
    const plim_graph_sizes *of = &p->part[p->denoiser].graph.sizes;
    plim_binding b = {.infer = bind->infer, .batch = bind->batch};
    plim_err why = PLIM_ERR_INIT;
    if (parts[i].role == ENCODES)
        b.seq = of->seq;
    else
        b.images = (struct plim_images){.given = true,
                                        .sized = true,
                                        .count = 1,
                                        .width = of->width,
                                        .height = of->height};
    plim_status st = build_part(p, i, &b, &why);
    if ((st == PLIM_EUSAGE || st == PLIM_ERANGE) && b.seq) {
        b.seq = 0;
        why = (plim_err)PLIM_ERR_INIT;
        st = build_part(p, i, &b, &why);
    }
    return st == PLIM_ENOMEM ? plim_oom(p->err) : st ? leave_part(p, g, i, &why) : PLIM_OK;
}

/* ---- all of them ------------------------------------------------------------------------------ */

/* Pipelines of Stable Diffusion run the denoiser on the prompt and on an empty one at once: classifier-free guidance. */
static bool is_doubled(const pipeline *p)
{
    return plim_str_starts(p->class, "StableDiffusion");
}

/* Its nodes, if they are known as they run; else its parameters alone. */
static plim_status join_part(pipeline *p, plim_graph *g, uint32_t i, bool infer)
{
    const plim_graph *part = &p->part[i].graph;
    const bool denoiser = i == p->denoiser, rests = !denoiser && parts[i].role == DENOISES;
    plim_append how = {.name = plim_str_of(parts[i].name),
                       .runs = part->lifetimes && !rests,
                       .trained = denoiser,
                       .returns = denoiser || (infer && parts[i].role == DECODES)};
    plim_str out = part->about.left_out;
    if (!plim_graph_append(g, part, &how))
        return plim_oom(p->err);
    if (!out.n && !how.runs && !rests)
        out = PLIM_STR("what it holds while it runs is left out");
    if (!out.n)
        return PLIM_OK;
    out = plim_arena_printf(p->arena, "%s: " PLIM_STR_FMT, parts[i].name, PLIM_STR_ARG(out));
    return out.p && plim_graph_leave_out(g, out) ? PLIM_OK : plim_oom(p->err);
}

/* Encoders, denoiser, decoder; of a training step the autoencoder encodes before the denoiser runs. */
static plim_status join_parts(pipeline *p, plim_graph *g, bool infer)
{
    for (uint32_t turn = 0; turn < 3; turn++)
        for (uint32_t i = 0; i < PARTS; i++) {
            uint32_t of = i == p->denoiser ? 1 : infer && parts[i].role == DECODES ? 2 : 0;
            if (p->part[i].built && of == turn)
                PLIM_TRY(join_part(p, g, i, infer));
        }
    return PLIM_OK;
}

/* Whole pipelines that were compared with a run: tests of the others are about their denoisers. */
static plim_str note_of(const pipeline *p, bool infer, bool twice)
{
    const bool compared = infer && (plim_str_is(p->class, "StableDiffusionPipeline") ||
                                    plim_str_is(p->class, "StableDiffusionXLPipeline"));
    return plim_arena_printf(
        p->arena, "%s%s%s",
        compared ? "" : "this pipeline as a whole was not compared with a run",
        compared || !twice ? "" : "; ",
        twice ? "the denoiser runs on twice the batch: with the prompt and without" : "");
}

static plim_status build_parts(pipeline *p, plim_graph *g, const plim_binding *bind)
{
    plim_binding b = *bind;
    const bool twice = bind->infer && is_doubled(p);
    if (twice)
        b.batch = 2 * PLIM_MAX(bind->batch, 1);
    PLIM_TRY(build_part(p, p->denoiser, &b, p->err));
    const plim_graph *of = &p->part[p->denoiser].graph;
    for (uint32_t i = 0; i < PARTS; i++)
        if (p->part[i].here && i != p->denoiser)
            PLIM_TRY(build_beside(p, g, i, bind));
    PLIM_TRY(join_parts(p, g, bind->infer));
    g->sizes = of->sizes;
    g->sizes.batch = twice ? of->sizes.batch / 2 : of->sizes.batch;
    g->denoises = true;
    g->about.producer = of->about.producer;
    g->about.releases = of->about.releases;
    g->about.attention = of->about.attention;
    g->about.model_type = PLIM_STR("diffusers:pipeline");
    g->about.note = note_of(p, bind->infer, twice);
    return g->about.note.p ? PLIM_OK : plim_oom(p->err);
}

static plim_status pipeline_read(plim_graph *g, const plim_source *s, const plim_binding *bind,
                                 plim_err *err)
{
    static const plim_binding none;
    pipeline *p = PLIM_NEW(g->arena, pipeline);
    if (!p)
        return plim_oom(err);
    *p = (pipeline){.s = s, .arena = g->arena, .err = err};
    PLIM_TRY(read_index(p));
    PLIM_TRY(plim_graph_init(g, g->arena, err));
    PLIM_TRY(build_parts(p, g, bind ? bind : &none));
    g->about.format = PLIM_STR("diffusers pipeline");
    return PLIM_OK;
}

/* "_class_name", and a part of a pipeline. */
static int pipeline_probe(plim_bytes b)
{
    plim_err none = PLIM_ERR_INIT;
    plim_json j = plim_hf_json(b, &none);
    plim_str key;
    bool named = false, whole = false;
    if (!b.n || plim_json_peek(&j) != PLIM_JSON_OBJECT)
        return 0;
    plim_json_object(&j);
    while (plim_json_member(&j, &key)) {
        const plim_json_kind kind = plim_json_peek(&j);
        named |= plim_str_is(key, "_class_name");
        whole |= part_at(key) < PARTS && (kind == PLIM_JSON_ARRAY || kind == PLIM_JSON_OBJECT);
        plim_json_skip(&j);
    }
    return named && whole ? 85 : 0;
}

const plim_importer plim_importer_pipeline = {
    .name = "pipeline",
    .doc =
        "model_index.json of diffusers, or the folder with it: denoiser, text encoders, autoencoder",
    .src = "diffusers 0.42.1, pipelines/pipeline_utils.py; docs/formats/diffusers.md",
    .gives = "graph, parameters",
    .probe = pipeline_probe,
    .read = pipeline_read,
    .built = true,
};
