/* hf_images.c -- the images of models that are data: how many a sequence has, and the tokens that they take. */
#include "import/hf/hf_images.h"

/* Of a model that takes or makes pictures, but not within a text, one for each of the batch, or a video. */
static void read_sizes(plim_hf *h, plim_family_model *m, plim_family_call *call)
{
    const struct plim_images *given = &h->bind->images;
    plim_graph_sizes *sizes = &h->n.g->sizes;
    const int64_t frames = plim_family_frames(m);
    const bool counted = given->given && !given->sized;
    if (counted && !frames && given->count != 1)
        plim_nn_fail(&h->n, PLIM_EUSAGE,
                     "images: 'batch' says how many; give their size, WIDTHxHEIGHT");
    if (given->given && given->width) {
        call->image[0] = given->height;
        call->image[1] = given->width;
    }
    call->frames = counted && frames ? given->count : frames;
    sizes->takes_images = plim_family_text(m) || given->given;
    if (!sizes->takes_images)
        return;
    sizes->images = call->frames;
    plim_family_image(m, call, &sizes->height, &sizes->width);
}

void plim_hf_images(plim_hf *h, plim_family_model *m, plim_family_call *call)
{
    const bool reads = plim_family_reads(m);
    const char *input = reads ? "pixel_values" : plim_family_input(m);
    const struct plim_images *given = &h->bind->images;
    const struct plim_input_shape *pixels = plim_hf_bound_shape(h, input, !reads);
    plim_graph_sizes *sizes = &h->n.g->sizes;
    if (pixels && (reads || plim_family_text(m)))
        plim_nn_fail(&h->n, PLIM_EUSAGE, "pixels are not given by their shape: set 'images'");
    if (pixels && pixels->rank != 4)
        plim_nn_fail(&h->n, PLIM_EUSAGE, "'%s' has 4 sizes, not %d", input, (int)pixels->rank);
    for (int i = 0; pixels && i < 2; i++)
        call->image[i] = pixels->dim[2 + i];
    if (!reads || plim_family_pairs(m)) {
        read_sizes(h, m, call);
        return;
    }
    sizes->takes_images = true;
    sizes->images = call->images = given->none || given->crowded ? 0
                                   : given->given                ? given->count
                                                                 : 1;
    call->image[0] = given->height;
    call->image[1] = given->width;
}

/* Embeddings of images take the places of tokens: how many in a sequence. */
static int64_t image_tokens(const plim_graph *g, const plim_family_call *call)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const plim_node *node = &g->nodes[i];
        const uint32_t text = plim_node_value(node, 0), images = plim_node_value(node, 2);
        uint64_t n_text = 0, n_images = 0;
        if (plim_str_is(node->target, "aten.masked_scatter.default") && text != PLIM_NONE &&
            images != PLIM_NONE && plim_meta_numel(&g->values[text].meta, &n_text) &&
            plim_meta_numel(&g->values[images].meta, &n_images) &&
            n_text >= (uint64_t)call->seq)
            most = PLIM_MAX(most, n_images / (n_text / (uint64_t)call->seq));
    }
    return (int64_t)most;
}

bool plim_hf_crowded(plim_hf *h, const plim_family_call *call)
{
    int64_t tokens = h->n.st || !call->images ? 0 : image_tokens(h->n.g, call);
    if (tokens <= call->seq)
        return false;
    bool asked = h->bind->images.given && !h->bind->seq_tried;
    if (asked)
        plim_nn_fail(&h->n, PLIM_EUSAGE,
                     "images: those of a sequence take %" PRId64
                     " tokens, and it has %" PRId64,
                     tokens, call->seq);
    return !asked;
}

plim_str plim_hf_images_note(const plim_hf *h, plim_family_model *m,
                             const plim_family_call *call)
{
    const plim_graph *g = h->n.g;
    if (call->images && call->image[0] && plim_family_fixed(m))
        return PLIM_STR("images are resized to those of the configuration");
    if (call->images && plim_family_rounds(m)) {
        int64_t height = 0, width = 0;
        plim_family_image(m, call, &height, &width);
        return plim_arena_printf(
            g->arena, "%s %" PRId64 "x%" PRId64 " pixels%s",
            call->image[0] ? "images are resized to" : "each sequence has one image of", width,
            height, call->image[0] ? "" : ", unless 'images' says otherwise");
    }
    if (!g->sizes.takes_images || g->sizes.width || h->bind->images.given ||
        h->bind->images.none)
        return PLIM_STR("");
    if (!call->images)
        return PLIM_STR("no image is counted: a sequence has no room for its tokens");
    return PLIM_STR("each sequence has one image, unless 'images' says otherwise");
}
