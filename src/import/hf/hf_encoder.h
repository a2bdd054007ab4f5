/* hf_encoder.h -- shared by encoders and by models with an encoder and a decoder: splitting
 * and joining attention heads, and the heads that classes put on top of hidden states. */
#ifndef PLIM_HF_ENCODER_H
#define PLIM_HF_ENCODER_H

#include "import/hf/hf_parts.h"

/* ---- classes ----------------------------------------------------------------------- */

/* The part of the built class's name after the family's prefix: "ForMaskedLM" of
 * "BertForMaskedLM"; of the family's first class if the file names none. */
plim_str plim_hf_class_head(const plim_hf *h, const char *prefix);
/* The root's type: the prefix and that part. */
void plim_hf_root(plim_hf *h, const char *prefix);

/* The number in 0..1 that is the raw value of `key`, or `other` if there is none. */
double plim_hf_share_or(plim_hf *h, const char *key, plim_str raw, double other);

/* ---- inputs -------------------------------------------------------------------------- */

/* Sets h->batch as the user binds it, or to 1: for models without tokens. */
void plim_hf_batch(plim_hf *h, const char *first_input);
/* pixel_values [batch, channels, height, width], after plim_hf_batch */
uint32_t plim_hf_pixels(plim_hf *h, plim_dtype t, int64_t channels, const int64_t size[2]);
/* x.to(the dtype of the parameters); at least one must exist */
uint32_t plim_hf_to_parameters(plim_nn *n, uint32_t x);
/* 224 or [224, 224], the value of `key`, into two sizes; `other` if there is none. */
void plim_hf_pair(plim_hf *h, const char *key, plim_str raw, int64_t other, int64_t size[2]);
/* [2, 2, 6, 2], the value of `key`, into at most `room` sizes; returns how many: 0 if there is
 * none. */
uint32_t plim_hf_list(plim_hf *h, const char *key, plim_str raw, int64_t *out, uint32_t room);
/* The side of square patches; the image must hold at least one. */
int64_t plim_hf_patch(plim_hf *h, plim_str raw, int64_t other, const int64_t image[2]);

/* ---- attention ---------------------------------------------------------------------- */

/* Fails unless `heads` divides `width`. */
void plim_hf_check_head_width(plim_hf *h, int64_t width, int64_t heads);
/* [batch, seq, heads * dim] to [batch, heads, seq, dim] */
uint32_t plim_hf_split_heads(plim_nn *n, uint32_t x, int64_t dim);
/* [batch, seq, heads, dim] to [batch, seq, heads * dim] */
uint32_t plim_hf_join_heads(plim_nn *n, uint32_t x);
/* Attention to all tokens but those that the mask leaves out, with the usual scale; heads joined */
uint32_t plim_hf_full_attention(plim_hf *h, plim_hf_attention a);

/* ---- heads --------------------------------------------------------------------------- */

/* Linear with bias; either may be tied to another parameter (PLIM_NONE: not tied). */
uint32_t plim_hf_tied_linear(plim_nn *n, const char *name, uint32_t x, int64_t out,
                             uint32_t weight, uint32_t bias);

/* num_labels and what is derived from it, with HF_LABELS among the keys */
typedef struct plim_hf_labels {
    plim_str names, problem;
    int64_t count;
} plim_hf_labels;
#define HF_LABELS(field)                                                                      \
    HF_RAW(field.names, "id2label"), HF_WORD(field.problem, "problem_type", ""),              \
        HF_OPTION(field.count, "num_labels", 2)
int64_t plim_hf_n_labels(plim_hf *h, const plim_hf_labels *l);

/* Make the loss against an input of labels, and the value it is computed from, the outputs; in
 * inference only the latter. */
/* cross entropy over the last dimension; `labels` PLIM_NONE: creates that input */
void plim_hf_class_outputs(plim_hf *h, uint32_t logits, uint32_t labels);
/* one row per item of the batch: by problem_type; if null, the number of labels decides */
void plim_hf_sequence_outputs(plim_hf *h, uint32_t logits, const plim_hf_labels *l);
/* The input of this name, [batch, tokens]: as many as its shape was given, else as the source has. */
uint32_t plim_hf_target(plim_hf *h, const char *name);
/* The decoder's input: in training `labels`, shifted; in inference an input of its own.  Both
 * [batch, seq]. */
uint32_t plim_hf_shift_right(plim_hf *h, uint32_t labels);
/* [batch, seq, 2]: start and end of an answer */
void plim_hf_answer_outputs(plim_hf *h, uint32_t logits);

#endif
