/* hf_parts.h -- shared by the models of transformers, as modules and as functions.
 * src: transformers 5.23: modeling_rope_utils.py, masking_utils.py,
 * integrations/{sdpa_attention,moe}.py, loss/loss_utils.py, activations.py */
#ifndef PLIM_HF_PARTS_H
#define PLIM_HF_PARTS_H

#include "import/hf/hf.h"

/* Whether the model type follows a rule in the release whose classes are built. */
bool plim_hf_follows(const plim_hf *h, plim_hf_change rule);
/* The square root of a head's size, by which scores are divided. */
double plim_hf_head_root(int64_t hidden, int64_t heads);

/* ---- tokens and where they stand ------------------------------------------------- */

/* input_ids [batch, seq], after plim_hf_tokens */
uint32_t plim_hf_ids(plim_hf *h);
/* The shape that the user gives an input of that name, or the first one if this is the first; NULL: none. */
const struct plim_input_shape *plim_hf_bound_shape(const plim_hf *h, const char *name,
                                                   bool first);
/* An error if the user gives an input of that name, or the first one, other sizes than these. */
void plim_hf_check_shape(plim_hf *h, const char *name, bool first, plim_ints dim);
/* An input of these sizes, with that check. */
uint32_t plim_hf_input(plim_hf *h, const char *name, plim_dtype t, plim_ints dim);
/* arange(seq) + past, [1, seq] */
uint32_t plim_hf_positions(plim_hf *h);
/* Enters a layer whose arguments are x and those positions. */
void plim_hf_layer(plim_hf *h, const char *name, const char *type, uint32_t x);

/* ---- masks -------------------------------------------------------------------------- */

/* create_causal_mask and similar functions: a check for packed sequences, and a mask if the
 * attention cannot do without one. */
typedef struct plim_hf_mask {
    uint32_t positions; /* for the check; PLIM_NONE: the model does not pass them */
    bool sliding;
    int64_t window; /* of a sliding-window mask */
    bool always;    /* even where is_causal would do */
    bool full;      /* to later tokens, too */
    bool unpadded;  /* the attention_mask is about other tokens, those of the encoder */
} plim_hf_mask;
/* [batch, 1, seq, seq], or PLIM_NONE if is_causal suffices */
uint32_t plim_hf_causal_mask(plim_hf *h, plim_hf_mask m);
/* create_bidirectional_mask: PLIM_NONE unless sequences are padded. */
uint32_t plim_hf_full_mask(plim_hf *h);
/* Masks of models that get none, before masking_utils.py, which the open module holds: ones for so many tokens, as
 * large negative numbers [batch, 1, 1, tokens], and those with later tokens, [batch, 1, seq, seq]. */
uint32_t plim_hf_ones(plim_hf *h, plim_dtype t, int64_t tokens);
uint32_t plim_hf_numbers(plim_hf *h, uint32_t ones);
uint32_t plim_hf_causal_numbers(plim_hf *h, uint32_t ones, uint32_t positions);
/* The attention_mask that is passed, of int64; PLIM_NONE: none is. */
uint32_t plim_hf_padding(plim_hf *h);

/* Variables of a function that is not a module end here: until now they held these tensors. */
void plim_hf_end_variables(plim_nn *n, const uint32_t *id, size_t count);
void plim_hf_end_variable(plim_nn *n, uint32_t id);

/* ---- modules ---------------------------------------------------------------------------- */

/* LlamaRMSNorm and the like, as module `name` of class `type` */
uint32_t plim_hf_rms_norm(plim_nn *n, const char *name, const char *type, uint32_t x,
                          double eps);
/* gpt-oss's: also times the weight in fp32 */
uint32_t plim_hf_rms_norm_wide(plim_nn *n, const char *name, const char *type, uint32_t x,
                               double eps);
/* Gemma's: all in fp32, with a factor of 1 + weight */
uint32_t plim_hf_rms_norm_1p(plim_nn *n, const char *name, const char *type, uint32_t x,
                             double eps);
/* The same before 4.39: only the mean in fp32 */
uint32_t plim_hf_rms_norm_1p_narrow(plim_nn *n, const char *name, const char *type, uint32_t x,
                                    double eps);
/* x / sqrt(mean(x^2) + eps) with x cast to fp32 */
uint32_t plim_hf_normalized(plim_nn *n, uint32_t x, double eps);
/* An activation of activations.py ("silu", "gelu_new") as module `name`. */
uint32_t plim_hf_act(plim_hf *h, const char *name, plim_str act, uint32_t x);

/* Linear to `ffn`, an activation, Linear back: in the open module. */
typedef struct plim_hf_ffn {
    const char *in, *act, *out; /* names of the three */
} plim_hf_ffn;
uint32_t plim_hf_mlp(plim_hf *h, plim_hf_ffn names, plim_str act, uint32_t x, int64_t ffn,
                     bool bias);
/* LlamaMLP and the like, as module `name` of class `type`: gate, up and down projection. */
uint32_t plim_hf_gated_mlp(plim_hf *h, const char *name, const char *type, plim_str act,
                           uint32_t x, int64_t ffn, bool bias);

/* x.softmax(dim, dtype=float32) */
uint32_t plim_hf_softmax32(plim_nn *n, uint32_t x, int64_t dim);

/* ---- rotary positions ---------------------------------------------------------------------- */

typedef struct plim_hf_rope {
    uint32_t cos, sin; /* [1, seq, dim] */
} plim_hf_rope;
/* Module "rotary_emb" of class `type`, in x's dtype.  `kind`: prefix of the names of its
 * buffers if each kind of layer has its own table, else "". */
plim_hf_rope plim_hf_rotary(plim_hf *h, const char *type, const char *kind, uint32_t x,
                            uint32_t positions, int64_t dim);
/* The same in a layer, of the module that is open, without the factor that some kinds of positions have. */
plim_hf_rope plim_hf_rotary_in_layer(plim_hf *h, uint32_t x, uint32_t positions, int64_t dim);
/* positions times frequencies, [1, seq, dim / 2], with the buffers of such a module */
uint32_t plim_hf_angles(plim_hf *h, const char *kind, uint32_t positions, int64_t dim);
/* apply_rotary_pos_emb: adds a dimension for the heads to cos and sin. */
plim_hf_rope plim_hf_rope_heads(plim_nn *n, plim_hf_rope r);
/* x cos + rotate_half(x) sin */
uint32_t plim_hf_rotate(plim_nn *n, uint32_t x, plim_hf_rope r);
/* a cos - b sin and b cos + a sin */
void plim_hf_apply_rope(plim_nn *n, uint32_t a, uint32_t b, plim_hf_rope r, uint32_t out[2]);
/* The part of each head that is rotated, as wide as cos; *rest: the other part. */
uint32_t plim_hf_rotated_part(plim_nn *n, uint32_t x, plim_hf_rope r, uint32_t *rest);
/* Rotates that part of q and k, and joins the rest to it again.  own: in a function of its own,
 * which rebinds its variables; else those are the caller's. */
void plim_hf_rotate_parts(plim_nn *n, uint32_t *q, uint32_t *k, plim_hf_rope r, bool own);
/* gpt-oss: tables of half a head, and a head as two halves */
plim_hf_rope plim_hf_rotary_halves(plim_hf *h, const char *type, uint32_t x,
                                   uint32_t positions, int64_t dim);
uint32_t plim_hf_rotate_halves(plim_nn *n, uint32_t x, plim_hf_rope r);

/* ---- attention ------------------------------------------------------------------------------- */

/* Of eager attention. */
typedef enum plim_hf_softmax {
    PLIM_HF_SOFTMAX_FP32,  /* in fp32, cast to the type of the queries */
    PLIM_HF_SOFTMAX_CAST,  /* in the type of the scores, cast to that of the values */
    PLIM_HF_SOFTMAX_FLOAT, /* of the scores as fp32, cast to the type of the values */
    PLIM_HF_SOFTMAX_PLAIN,
} plim_hf_softmax;

typedef struct plim_hf_attention {
    uint32_t q, k, v; /* [batch, heads, seq, dim]; k and v may have fewer heads */
    uint32_t mask;    /* or PLIM_NONE */
    bool causal;      /* if there is no mask */
    double scale, dropout;
    double softcap; /* for eager attention; 0: none */
    uint32_t sinks; /* for eager attention; PLIM_NONE: none */
    plim_hf_softmax softmax;
    bool biased; /* eager attention: `bias` is added to the scores before the mask */
    uint32_t bias;
    bool
        keeps_scores; /* eager attention before 4.48: a variable has them until the module returns */
    uint32_t through; /* eager attention: callers that return the probabilities, too */
} plim_hf_attention;
/* past_key_values.update(): with use_cache, copies of k and v, which the model returns with
 * its other outputs.  window: to so many tokens the layer's cache is bounded; 0: it is not. */
void plim_hf_update_cache(plim_hf *h, uint32_t *k, uint32_t *v, int64_t window);
/* [batch, seq, heads, dim], contiguous */
/* By sdpa, or eager if h->eager. */
uint32_t plim_hf_attend(plim_hf *h, plim_hf_attention a);
/* Keys and values for each head, where several share them. */
void plim_hf_repeat_keys(plim_nn *n, plim_hf_attention *a);
/* The model has this choice of attention. */
void plim_hf_attends(plim_hf *h);

/* ---- heads -------------------------------------------------------------------------------------- */

/* lm_head over the hidden states, tied to `embedding` unless that is PLIM_NONE. */
uint32_t plim_hf_lm_head(plim_hf *h, uint32_t x, int64_t vocab, uint32_t embedding, bool bias);
/* Labels that are words: the tokens themselves, or an input "labels" if the binding says so or
 * has its shape; in inference PLIM_NONE. */
uint32_t plim_hf_word_labels(plim_hf *h);
/* Training: ForCausalLMLoss of the logits against an input "labels"; loss and logits
 * become the outputs.  Inference: the logits. */
void plim_hf_causal_outputs(plim_hf *h, uint32_t logits);

#endif
