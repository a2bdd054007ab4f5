/* adapter_prompt.c -- prompt tuning and p-tuning: embeddings of virtual tokens in front of those of each
 * sequence, and nothing else is trained.
 *
 *     inputs_embeds = self.word_embeddings(input_ids)
 *     labels = torch.cat((torch.full((batch, tokens), -100), labels), dim=1)
 *     prompts = self.prompt_encoder(tokens).to(inputs_embeds.dtype)
 *     return self.base_model(inputs_embeds=torch.cat((prompts, inputs_embeds), dim=1), labels=labels)
 *
 * The model was built for the longer sequence (plim_adapter_tokens): here its inputs get their own length.
 *
 * src: peft 0.21 peft_model.py PeftModelForCausalLM.forward, get_prompt; tuners/prompt_tuning/model.py,
 * tuners/p_tuning/model.py */
#include "transform/adapter.h"
#include "transform/call.h"

enum { TOKENS = PLIM_PROMPT_TOKENS, HIDDEN }; /* items */

typedef struct prompt {
    plim_adapting *ad;
    plim_nn *n;
    int64_t tokens, batch, width;
    plim_node *first, *last; /* the call of the module that embeds the tokens */
    uint32_t ids;            /* what it is given */
    uint32_t view; /* of the ids, which a model that is given embeddings does not make */
} prompt;

static bool is_token_input(const prompt *p, uint32_t id)
{
    const plim_value *v = &p->n->g->values[id], *ids = &p->n->g->values[p->ids];
    return v->kind == PLIM_VALUE_INPUT && v->meta.rank == 2 && v->meta.dtype == PLIM_I64 &&
           v->meta.dim[0] == ids->meta.dim[0] && v->meta.dim[1] == ids->meta.dim[1];
}

/* Without the virtual tokens. */
static void shorten_value(const prompt *p, uint32_t id)
{
    plim_meta *m = &p->n->g->values[id].meta;
    plim_set_dim(m, 1, m->dim[1] - p->tokens);
    plim_meta_contiguous(m);
}

/* GPT-2 looks up a view of the ids. */
static void look_through_view(prompt *p, const plim_node *old)
{
    const plim_graph *g = p->n->g;
    p->view = PLIM_NONE;
    for (const plim_node *node = old; node < p->first && p->ids != PLIM_NONE; node++)
        if (node->outs[0] == p->ids && node->n_args && node->args[0].kind == PLIM_ARG_VALUE &&
            g->values[node->args[0].id].kind == PLIM_VALUE_INPUT) {
            p->view = p->ids;
            p->ids = node->args[0].id;
            return;
        }
}

/* Shortens the inputs and what the embedding makes of them; returns the one that is left when the
 * embedding has its own, the labels, or PLIM_NONE. */
static uint32_t shorten_inputs(const prompt *p)
{
    plim_graph *g = p->n->g;
    uint32_t labels = g->labels_are_inputs ? p->ids : PLIM_NONE;
    for (uint32_t i = 0; i < g->n_values; i++)
        if (i != p->ids && is_token_input(p, i)) {
            labels = i;
            shorten_value(p, i);
        }
    shorten_value(p, p->ids);
    for (const plim_node *node = p->first; node < p->last; node++)
        for (uint32_t i = 0; i < node->n_outs; i++)
            shorten_value(p, node->outs[i]);
    return labels;
}

static bool find_embedding(prompt *p, plim_node *old, uint32_t n)
{
    const plim_graph *g = p->n->g;
    uint32_t i = 0;
    while (i < n && !plim_adapter_embeds(&old[i]))
        i++;
    p->first = &old[i];
    p->last = &old[i < n ? plim_call_end(old, n, i) : n];
    p->ids = i < n ? plim_call_input(g, p->first, p->last) : PLIM_NONE;
    look_through_view(p, old);
    if (p->ids == PLIM_NONE || g->sizes.virtual_tokens != p->tokens ||
        !is_token_input(p, p->ids) || p->last[-1].n_outs != 1) {
        plim_nn_fail(p->n, PLIM_EUNSUPPORTED,
                     "%s: only decoders that plimsoll builds from a config.json can be given "
                     "virtual tokens",
                     plim_adapter_spec(p->ad)->method->name);
        return false;
    }
    p->batch = g->values[p->ids].meta.dim[0];
    p->width = plim_nn_dim(p->n, p->last[-1].outs[0], -1);
    return true;
}

static uint32_t make_filled(plim_nn *n, int64_t batch, int64_t tokens)
{
    return NN_OP(n, "aten.full.default", ARG_IS("size", INTS(batch, tokens)),
                 ARG_F("fill_value", -100), ARG_I("dtype", PLIM_I64));
}

static uint32_t add_linear(plim_adapting *ad, const char *name, uint32_t x, int64_t out)
{
    plim_nn *n = plim_adapter_nn(ad);
    uint32_t w =
        plim_adapter_weight(ad, name, "Linear", "weight", INTS(out, plim_nn_dim(n, x, -1)));
    uint32_t b = plim_adapter_weight(ad, name, "Linear", "bias", INTS(out));
    plim_nn_enter(n, name, "Linear");
    x = plim_nn_linear_op(n, x, w, b);
    plim_nn_leave(n);
    return x;
}

/* The embeddings of p-tuning go through layers: the encoder's type MLP. */
static uint32_t encode_prompts(const prompt *p, uint32_t x)
{
    const plim_adapter *spec = plim_adapter_spec(p->ad);
    static const char *const linear[] = {"0", "2", "4"}, *const relu[] = {"1", "3"};
    if (spec->method != &plim_adapter_p_tuning)
        return x;
    int64_t hidden = spec->item[HIDDEN] > 0 ? (int64_t)spec->item[HIDDEN] : p->width;
    plim_nn_enter(p->n, "mlp_head", "Sequential");
    for (int i = 0; i < 3; i++) {
        x = add_linear(p->ad, linear[i], x, i < 2 ? hidden : p->width);
        if (i < 2)
            x = plim_nn_act(p->n, relu[i], x, PLIM_RELU);
    }
    plim_nn_leave(p->n);
    return x;
}

/* get_prompt: those of one sequence, in fp32 as the encoder is, repeated for all. */
static uint32_t get_prompt(const prompt *p)
{
    plim_nn *n = p->n;
    bool mlp = plim_adapter_spec(p->ad)->method == &plim_adapter_p_tuning;
    uint32_t tokens = make_filled(n, p->batch, p->tokens); /* from the CPU */
    tokens = plim_nn_slice(n, tokens, 0, 0, 1, 1);
    plim_nn_enter(n, "prompt_encoder", "ModuleDict");
    plim_nn_enter(n, "default", mlp ? "PromptEncoder" : "PromptEmbedding");
    uint32_t table = plim_adapter_weight(p->ad, "embedding", "Embedding", "weight",
                                         INTS(p->tokens, p->width));
    plim_nn_enter(n, "embedding", "Embedding");
    uint32_t x = plim_nn_embedding_op(n, tokens, table);
    plim_nn_leave(n);
    x = encode_prompts(p, x);
    plim_nn_leave(n);
    plim_nn_leave(n);
    return NN_OP(n, "aten.repeat.default", ARG_T("self", x),
                 ARG_IS("repeats", INTS(p->batch, 1, 1)));
}

static void add_prompt(plim_adapting *ad)
{
    plim_nn *n = plim_adapter_nn(ad);
    prompt p = {.ad = ad, .n = n, .tokens = (int64_t)plim_adapter_spec(ad)->item[TOKENS]};
    uint32_t count;
    plim_node *old = plim_graph_take_nodes(n->g, &count);
    if (!find_embedding(&p, old, count))
        return;
    for (plim_node *node = p.first; node < p.last && p.view != PLIM_NONE; node++)
        plim_adapter_replace(ad, node, p.view, p.ids);
    uint32_t embedded = p.last[-1].outs[0], labels = shorten_inputs(&p), longer = PLIM_NONE;
    uint32_t x = plim_adapter_embed(ad, p.first, p.last);
    n->scope = 0;
    if (labels != PLIM_NONE) {
        uint32_t parts[] = {make_filled(n, p.batch, p.tokens), labels};
        longer = plim_nn_cat(n, parts, 2, 1);
        plim_nn_holds(n, parts[0]);
        plim_nn_holds(n, longer);
    }
    uint32_t prompts = plim_nn_to_like(n, get_prompt(&p), x);
    uint32_t parts[] = {prompts, x};
    plim_nn_holds(n, prompts);
    plim_nn_cat(n, parts, 2, 1);
    plim_nn_holds(n, embedded); /* which the result is from here on */
    if (!n->st)
        plim_call_gives(n->g, embedded);
    for (uint32_t i = 0; i < count && !n->st; i++) {
        bool embeds = &old[i] >= p.first && &old[i] < p.last;
        if (embeds || (p.view != PLIM_NONE && old[i].outs[0] == p.view))
            continue;
        if (labels != PLIM_NONE)
            plim_adapter_replace(ad, &old[i], labels, longer);
        plim_adapter_keep(ad, &old[i]);
    }
}

const plim_adapter_method plim_adapter_prompt_tuning = {
    .name = "prompt_tuning",
    .doc = "embeddings of virtual tokens in front of those of each sequence",
    .src = "peft 0.21 tuners/prompt_tuning/model.py",
    .item = {{"tokens", 20, 1, 65536, NULL, PLIM_ADAPTER_WHOLE, "num_virtual_tokens"}},
    .whole = add_prompt,
};

const plim_adapter_method plim_adapter_p_tuning = {
    .name = "p_tuning",
    .doc = "embeddings of virtual tokens, made by an MLP",
    .src = "peft 0.21 tuners/p_tuning/model.py",
    .item = {{"tokens", 20, 1, 65536, NULL, PLIM_ADAPTER_WHOLE, "num_virtual_tokens"},
             {"hidden", 0, 0, 1 << 20, NULL, PLIM_ADAPTER_WHOLE, "encoder_hidden_size"}},
    .whole = add_prompt,
};
