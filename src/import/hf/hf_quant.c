/* hf_quant.c -- see hf_quant.h.
 *
 * A packed weight is a few buffers, which are known to the byte.  The temporaries of a product
 * with it are not: kernels differ by version, card and number of tokens.  They take no memory,
 * or that of the whole dequantized weight for a moment; each method states which is usual.
 *
 * src: transformers 5.23 quantizers/, integrations/{bitsandbytes,finegrained_fp8,mxfp4}.py;
 * bitsandbytes 0.49 functional.py, nn/modules.py, backends/cuda/ops.py; the layouts of qlinear
 * modules of GPTQModel and AutoAWQ */
#include "import/hf/hf_quant.h"

#include <stdio.h>

#include "base/fmt.h"
#include "base/json.h"
#include "import/hf/hf_names.h"

typedef struct config {
    plim_str method, format, storage, skip, block, scheme, scale, expert, dynamic, only, also;
    plim_str groups, second, type, strategy; /* of compressed-tensors */
    int64_t bits, group;
    bool in_8bit, in_4bit, twice, wide, head, unpacks;
} config;

static const plim_hf_key keys[] = {
    HF_WORD(method, "quant_method", ""),
    HF_OPTION(bits, "bits w_bit", 4),
    HF_OPTION(group, "group_size q_group_size", 128),
    HF_WORD(format, "checkpoint_format format version", ""),
    HF_BOOL(in_8bit, "load_in_8bit", 0),
    HF_BOOL(in_4bit, "load_in_4bit", 0),
    HF_BOOL(twice, "bnb_4bit_use_double_quant", 0),
    HF_WORD(storage, "bnb_4bit_quant_storage", "uint8"),
    HF_WORD(scheme, "activation_scheme", "dynamic"),
    HF_WORD(scale, "scale_fmt", "float"),
    HF_RAW(skip, "modules_to_not_convert llm_int8_skip_modules ignored_layers ignore"),
    HF_RAW(groups, "config_groups.group_0"),
    HF_RAW(second, "config_groups.group_1"),
    {HF_ROW(block, "weight_block_size", RAW), .word = "[128, 128]"},
    /* keys that add modules to the model or change them: */
    HF_BOOL(wide, "llm_int8_has_fp16_weight", 0),
    HF_BOOL(head, "lm_head", 0),
    HF_BOOL(unpacks, "dequantize", 0),
    HF_WORD(expert, "expert_dtype", "fp8"),
    HF_RAW(dynamic, "dynamic"),
    HF_RAW(only, "modules_in_block_to_quantize"),
    HF_RAW(also, "modules_to_convert"),
};

/* compressed-tensors: of config_groups.group_0.weights */
static const plim_hf_key group_keys[] = {
    HF_OPTION(bits, "weights.num_bits", 8),
    HF_OPTION(group, "weights.group_size", 0),
    HF_WORD(type, "weights.type", "int"),
    HF_WORD(strategy, "weights.strategy", "tensor"),
};

/* Temporaries of a product, besides its result: between two figures, usually one of them. */
typedef struct scratch {
    uint64_t low, usual, high;
} scratch;

typedef struct method {
    const char *name, *type; /* as in the file; the class of a Linear, or NULL: none */
    const char *formats;     /* for words of 32 bits: the formats with this layout; or NULL */
    bool experts;            /* packs those of a mixture too */
    bool conv1d;             /* packs GPT-2's transposed Linear too */
    /* Adds the parts of a weight [experts, out, in], experts 0: [out, in]. */
    void (*pack)(plim_hf *h, plim_hf_packed *p, const char *name, int64_t experts);
    scratch (*product)(const plim_hf_packed *p, uint64_t rows);
} method;

typedef struct plim_hf_quant {
    config c;
    const method *m;
    plim_map skip;
    bool skips_head; /* as the class says, in addition to those the file names */
    int64_t block[2];
    plim_dtype storage;
    uint64_t weights, modules; /* packed so far */
} plim_hf_quant;

/* ---- parts ------------------------------------------------------------------------- */

static int64_t ceil_div(int64_t n, int64_t of) { return n / of + (n % of != 0); }

static void add_part(plim_hf *h, plim_hf_packed *p, const char *name, plim_dtype t,
                     plim_ints dim)
{
    plim_assert(p->n < PLIM_HF_PACKED_PARTS);
    p->part[p->n++] = plim_nn_packed(&h->n, name, t, dim);
}

/* Number of 32-bit words that hold n numbers of that many bits; fails unless they are full. */
static int64_t count_words(plim_hf *h, int64_t n, int64_t bits)
{
    if (n > INT64_MAX / bits || n * bits % 32)
        plim_nn_fail(&h->n, PLIM_ESHAPE,
                     "%" PRId64 " weights of %" PRId64 " bits do not fill whole 32-bit words",
                     n, bits);
    return h->n.st ? 1 : n * bits / 32;
}

static int64_t count_groups(const plim_hf *h, int64_t in)
{
    int64_t size = h->quant->c.group;
    return size > 0 ? ceil_div(in, size) : 1; /* -1: one per row */
}

/* src: GPTQModel nn_modules/qlinear/__init__.py */
static void pack_gptq(plim_hf *h, plim_hf_packed *p, const char *name, int64_t experts)
{
    int64_t bits = h->quant->c.bits, rows = count_groups(h, p->in);
    (void)name, (void)experts;
    add_part(h, p, "qweight", PLIM_I32, INTS(count_words(h, p->in, bits), p->out));
    add_part(h, p, "qzeros", PLIM_I32, INTS(rows, count_words(h, p->out, bits)));
    add_part(h, p, "scales", PLIM_F16, INTS(rows, p->out));
    add_part(h, p, "g_idx", PLIM_I32, INTS(p->in));
}

/* src: AutoAWQ modules/linear/gemm.py */
static void pack_awq(plim_hf *h, plim_hf_packed *p, const char *name, int64_t experts)
{
    int64_t bits = h->quant->c.bits, rows = count_groups(h, p->in);
    int64_t row = count_words(h, p->out, bits);
    (void)name, (void)experts;
    add_part(h, p, "qweight", PLIM_I32, INTS(p->in, row));
    add_part(h, p, "qzeros", PLIM_I32, INTS(rows, row));
    add_part(h, p, "scales", PLIM_F16, INTS(rows, p->out));
}

/* Blocks of 64 weights share a maximum; 256 of these may share one again. */
static void pack_bnb4(plim_hf *h, plim_hf_packed *p, const char *name, int64_t experts)
{
    enum { BLOCK = 64, AGAIN = 256, CODES = 16, CODES_AGAIN = 256 };
    int64_t n = (int64_t)p->elements, blocks = ceil_div(n, BLOCK);
    plim_dtype storage = h->quant->storage;
    (void)name, (void)experts;
    add_part(h, p, "weight", storage,
             INTS(ceil_div(ceil_div(n, 2), (int64_t)plim_dtype_bytes(storage)), 1));
    add_part(h, p, "weight.quant_map", PLIM_F32, INTS(CODES));
    add_part(h, p, "weight.absmax", h->quant->c.twice ? PLIM_U8 : PLIM_F32, INTS(blocks));
    if (!h->quant->c.twice)
        return;
    add_part(h, p, "weight.nested_absmax", PLIM_F32, INTS(ceil_div(blocks, AGAIN)));
    add_part(h, p, "weight.nested_quant_map", PLIM_F32, INTS(CODES_AGAIN));
}

static void pack_bnb8(plim_hf *h, plim_hf_packed *p, const char *name, int64_t experts)
{
    (void)name, (void)experts;
    add_part(h, p, "weight", PLIM_I8, INTS(p->out, p->in));
    add_part(h, p, "SCB", PLIM_F32, INTS(p->out));
}

static void pack_fp8(plim_hf *h, plim_hf_packed *p, const char *name, int64_t experts)
{
    const int64_t *b = h->quant->block;
    int64_t rows = b[0] ? ceil_div(p->out, b[0]) : 1, cols = b[0] ? ceil_div(p->in, b[1]) : 1;
    const char *scale = plim_nn_join(&h->n, name, "_scale_inv");
    plim_dtype t = plim_str_is(h->quant->c.scale, "ue8m0") ? PLIM_F8E8M0FNU : PLIM_F32;
    if (experts && !strcmp(name, "gate_up_proj")) /* both halves are packed separately */
        rows = PLIM_MAX(rows, 2);
    if (experts) {
        add_part(h, p, name, PLIM_F8E4M3FN, INTS(experts, p->out, p->in));
        add_part(h, p, scale, t, INTS(experts, rows, cols));
    } else {
        add_part(h, p, name, PLIM_F8E4M3FN, INTS(p->out, p->in));
        add_part(h, p, scale, b[0] ? t : PLIM_F32,
                 b[0] ? INTS(rows, cols) : (plim_ints){NULL, 0});
    }
}

static void pack_mxfp4(plim_hf *h, plim_hf_packed *p, const char *name, int64_t experts)
{
    enum { BLOCK = 32 };
    if (p->in % BLOCK)
        plim_nn_fail(&h->n, PLIM_ESHAPE,
                     "rows of %" PRId64 " weights are not a multiple of the block size %d",
                     p->in, BLOCK);
    add_part(h, p, plim_nn_join(&h->n, name, "_blocks"), PLIM_U8,
             INTS(experts, p->out, p->in / BLOCK, BLOCK / 2));
    add_part(h, p, plim_nn_join(&h->n, name, "_scales"), PLIM_U8,
             INTS(experts, p->out, p->in / BLOCK));
}

/* Words of 32 bits hold 4-bit weights, whose scales are in the type of the model; 8-bit weights have a
 * scale for each row, in fp32, as vLLM holds it.
 * src: compressed-tensors compressors/{pack_quantized,int_quantized}; vllm
 * model_executor/layers/quantization/compressed_tensors/schemes/ */
static void pack_compressed(plim_hf *h, plim_hf_packed *p, const char *name, int64_t experts)
{
    const config *c = &h->quant->c;
    int64_t groups = plim_str_is(c->strategy, "group") ? count_groups(h, p->in) : 1;
    plim_dtype t = plim_str_is(c->type, "float") ? PLIM_F8E4M3FN : PLIM_I8;
    (void)name, (void)experts;
    if (c->bits == 4) {
        add_part(h, p, "weight_packed", PLIM_I32, INTS(p->out, count_words(h, p->in, 4)));
        add_part(h, p, "weight_scale", h->n.dtype, INTS(p->out, groups));
        add_part(h, p, "weight_shape", PLIM_I64, INTS(2));
        return;
    }
    add_part(h, p, "weight", t, INTS(p->out, p->in));
    add_part(h, p, "weight_scale", PLIM_F32,
             plim_str_is(c->strategy, "tensor") ? INTS(1, 1) : INTS(p->out, groups));
}

/* ---- products ------------------------------------------------------------------------ */

/* A kernel that dequantizes on the fly (Marlin, ExLlama), or one that does not. */
static scratch product_fused(const plim_hf_packed *p, uint64_t rows)
{
    (void)rows;
    return (scratch){0, 0, p->unpacked};
}

/* src: AutoAWQ modules/linear/gemm.py: dequantizes from 1024 rows on */
static scratch product_awq(const plim_hf_packed *p, uint64_t rows)
{
    return (scratch){0, rows >= 1024 ? p->unpacked : 0, p->unpacked};
}

/* src: bitsandbytes backends/cuda/ops.py _gemm_4bit_use_custom_cuda: a custom kernel for few
 * rows; in older versions for one row only */
static scratch product_bnb4(const plim_hf_packed *p, uint64_t rows)
{
    return (scratch){rows > 1536 ? p->unpacked : 0, rows < 8 ? 0 : p->unpacked,
                     rows == 1 ? 0 : p->unpacked};
}

/* x in int8 with a scale per row, the result in int32.  src: MatMul8bitLt */
static scratch product_bnb8(const plim_hf_packed *p, uint64_t rows)
{
    uint64_t in = (uint64_t)p->in, out = (uint64_t)p->out, x = plim_sat_mul(rows, in),
             n = plim_sat_add(plim_sat_add(x, plim_sat_mul(4, rows)),
                              plim_sat_mul(4, plim_sat_mul(rows, out)));
    return (scratch){n, n, plim_sat_add(n, plim_sat_mul(2, x))};
}

/* x in fp8 with a scale per 128 elements */
static scratch product_fp8(const plim_hf_packed *p, uint64_t rows)
{
    uint64_t n = plim_sat_mul(rows, (uint64_t)p->in + 4 * (uint64_t)ceil_div(p->in, 128));
    return (scratch){n, n, n};
}

static const method methods[] = {
    {"gptq", "QuantLinear", "gptq gptq_v2", false, true, pack_gptq, product_fused},
    {"awq", "WQLinear_GEMM", "gemm GEMM", false, false, pack_awq, product_awq},
    {"bitsandbytes_4bit", "Linear4bit", NULL, false, true, pack_bnb4, product_bnb4},
    {"bitsandbytes_8bit", "Linear8bitLt", NULL, false, true, pack_bnb8, product_bnb8},
    {"fp8", "FP8Linear", NULL, true, false, pack_fp8, product_fp8},
    {"mxfp4", NULL, NULL, true, false, pack_mxfp4, product_fused},
    {"compressed-tensors", "CompressedLinear", NULL, false, false, pack_compressed,
     product_fused},
};

/* ---- the modules ------------------------------------------------------------------------ */

static plim_hf_packed pack_weight(plim_hf *h, const char *name, int64_t experts, int64_t out,
                                  int64_t in)
{
    plim_hf_quant *q = h->quant;
    plim_hf_packed p = {.out = out, .in = in};
    uint64_t one = (uint64_t)plim_dtype_bytes(h->n.dtype);
    if (!plim_mul((uint64_t)out, (uint64_t)in, &p.elements) ||
        !plim_mul(p.elements, (uint64_t)PLIM_MAX(experts, 1), &p.elements) ||
        p.elements > INT64_MAX / 8 || !plim_mul(p.elements, one, &p.unpacked))
        plim_nn_fail(&h->n, PLIM_ERANGE, "a weight of %" PRId64 " by %" PRId64 " overflows",
                     out, in);
    else
        q->m->pack(h, &p, name, experts);
    if (h->n.st && h->n.err)
        plim_err_prefix(h->n.err,
                        "'" PLIM_STR_FMT "': ", PLIM_STR_ARG(h->n.g->scopes[h->n.scope].path));
    q->weights = plim_sat_add(q->weights, p.elements);
    q->modules++;
    return p;
}

/* src: transformers quantizers/quantizers_utils.py should_convert_module, without patterns: a
 * name in the list is a prefix of the path up to a dot, or its end */
static bool is_kept(const plim_hf *h)
{
    const plim_hf_quant *q = h->quant;
    plim_str path = h->n.g->scopes[h->n.scope].path;
    uint32_t there;
    if (q->skips_head &&
        (plim_str_is(path, "lm_head") || plim_str_is(path, "text_projection")))
        return true;
    for (size_t i = 0; i <= path.n; i++) {
        bool dot = i == path.n || path.p[i] == '.' || (i && path.p[i - 1] == '.');
        if ((dot && i && plim_map_get(&q->skip, (plim_str){path.p, i}, &there)) ||
            plim_map_get(&q->skip, (plim_str){path.p + i, path.n - i}, &there))
            return true;
    }
    return false;
}

static uint32_t packed_linear(plim_hf *h, uint32_t x, int64_t out, bool bias)
{
    plim_nn *n = &h->n;
    n->g->scopes[n->scope].type = plim_str_of(h->quant->m->type);
    plim_hf_packed p = pack_weight(h, "weight", 0, out, plim_nn_dim(n, x, -1));
    uint32_t b = bias ? plim_nn_param(n, "bias", INTS(out)) : PLIM_NONE;
    return plim_hf_packed_product(h, x, &p, b);
}

static uint32_t make_linear(plim_nn *n, uint32_t x, int64_t out, bool bias)
{
    plim_hf *h = (plim_hf *)n; /* n is the first member */
    if (n->st || is_kept(h))
        return plim_nn_plain_linear(n, x, out, bias);
    return packed_linear(h, x, out, bias);
}

uint32_t plim_hf_packed_conv1d(plim_hf *h, uint32_t x, int64_t out)
{
    const plim_hf_quant *q = h->quant;
    if (!q || !q->m->conv1d || h->n.st || is_kept(h))
        return PLIM_NONE;
    return packed_linear(h, x, out, true);
}

plim_hf_packed plim_hf_packed_experts(plim_hf *h, const char *name, int64_t experts,
                                      int64_t out, int64_t in)
{
    if (!h->quant || h->n.st || is_kept(h))
        return (plim_hf_packed){.n = 0};
    if (!h->quant->m->experts) {
        plim_nn_fail(&h->n, PLIM_EUNSUPPORTED, "experts quantized with '%s' are not supported",
                     h->quant->m->name);
        return (plim_hf_packed){.n = 0};
    }
    return pack_weight(h, name, experts, out, in);
}

uint32_t plim_hf_packed_product(plim_hf *h, uint32_t x, const plim_hf_packed *p, uint32_t bias)
{
    plim_nn *n = &h->n;
    uint64_t rows = 0;
    if (n->st)
        return PLIM_NONE;
    if (plim_meta_numel(&n->g->values[x].meta, &rows) && p->in)
        rows /= (uint64_t)p->in;
    scratch s = h->quant->m->product(p, rows);
    uint64_t most = (uint64_t)INT64_MAX;
    const plim_named_arg a[] = {ARG_T("input", x),
                                ARG_TS("parts", p->part, p->n),
                                ARG_I("out", p->out),
                                ARG_I("low", (int64_t)PLIM_MIN(s.low, most)),
                                ARG_I("usual", (int64_t)PLIM_MIN(s.usual, most)),
                                ARG_I("high", (int64_t)PLIM_MIN(s.high, most)),
                                ARG_T("bias", bias)};
    return plim_nn_op(n, "plimsoll.packed_linear.default", a,
                      PLIM_COUNT(a) - (bias == PLIM_NONE));
}

/* ---- the configuration ---------------------------------------------------------------------- */

/* src: transformers quantizers/auto.py AutoQuantizationConfig.from_dict */
static const method *find_method(const config *c)
{
    plim_str name = c->in_4bit   ? PLIM_STR("bitsandbytes_4bit")
                    : c->in_8bit ? PLIM_STR("bitsandbytes_8bit")
                                 : c->method;
    for (size_t i = 0; i < PLIM_COUNT(methods); i++)
        if (plim_str_is(name, methods[i].name))
            return &methods[i];
    return NULL;
}

/* A module's name in the file, which may differ from the name in the class. */
static void skip_module(plim_hf *h, const plim_hf_names *names, plim_str name)
{
    plim_arena *a = h->n.g->arena;
    for (size_t i = 0; i < name.n; i++)
        if (strchr("*+?[](){}|^$\\:", name.p[i])) {
            plim_nn_fail(&h->n, PLIM_EUNSUPPORTED,
                         "'modules_to_not_convert' has the pattern '" PLIM_STR_FMT
                         "': only plain names are supported",
                         (int)PLIM_MIN(name.n, (size_t)60), name.p);
            return;
        }
    plim_str now = plim_hf_renamed(names, name, a);
    if (!now.p || !plim_map_put(a, &h->quant->skip, now, 0))
        plim_hf_oom(&h->n);
}

/* The names of modules; if the file gives none, the head, as in transformers. */
static void read_skip(plim_hf *h, plim_hf_quant *q)
{
    plim_json j;
    plim_hf_names names;
    static const char expected[] = "a list of names of modules";
    bool given = plim_str_starts(q->c.skip, "[");
    if (q->c.skip.n && !given)
        plim_hf_not(h, "modules_to_not_convert", q->c.skip, expected);
    q->skips_head = !given || !strcmp(q->m->name, "awq"); /* AWQ always skips the head */
    if (plim_hf_names_of(&names, plim_str_of(h->family->model_type), h->n.g->arena, NULL)) {
        plim_hf_oom(&h->n);
        return;
    }
    plim_json_init(&j, given ? q->c.skip : PLIM_STR("[]"),
                   NULL); /* it was read once already */
    j.lax = true;
    plim_json_array(&j);
    while (!h->n.st && plim_json_item(&j)) {
        if (plim_json_peek(&j) == PLIM_JSON_STRING)
            skip_module(h, &names, plim_json_str(&j));
        else
            plim_hf_not(h, "modules_to_not_convert", q->c.skip, expected);
    }
}

/* [128, 128]; null: one scale per weight */
static void read_block(plim_hf *h, plim_hf_quant *q)
{
    plim_json j;
    uint32_t n = 0;
    if (!q->c.block.n)
        return;
    plim_json_init(&j, q->c.block, NULL);
    j.lax = true;
    if (plim_json_peek(&j) == PLIM_JSON_ARRAY)
        for (plim_json_array(&j); plim_json_item(&j); n++) {
            int64_t v;
            if (plim_hf_whole(&j, &v) && n < 2 && v >= 1 && v <= INT32_MAX)
                q->block[n] = v;
        }
    if (n != 2 || !q->block[0] || !q->block[1])
        plim_nn_fail(&h->n, PLIM_ERANGE, "'weight_block_size' is not a list of two sizes");
}

/* Anything but null, [] and {}. */
static bool is_filled(plim_str raw)
{
    for (size_t i = 1; i + 1 < raw.n; i++)
        if (!strchr(" \t\r\n", raw.p[i]))
            return true;
    return false;
}

/* "": null, which is the default. */
static void check_word(plim_hf *h, const char *key, plim_str word, const char *known)
{
    if (word.n && !plim_item_has(known, word))
        plim_nn_fail(&h->n, PLIM_EUNSUPPORTED,
                     "'%s' is '" PLIM_STR_FMT "', expected one of: %s", key,
                     (int)PLIM_MIN(word.n, (size_t)40), word.p, known);
}

/* For weights packed in words. */
static void check_words(plim_hf *h, const config *c, const char *formats)
{
    static const int64_t widths[] = {2, 3, 4, 8};
    bool known = false;
    for (size_t i = 0; i < PLIM_COUNT(widths); i++)
        known |= c->bits == widths[i];
    if (!known)
        plim_nn_fail(&h->n, PLIM_ERANGE, "'bits' is %" PRId64 ", expected 2, 3, 4 or 8",
                     c->bits);
    if (c->group != -1 && (c->group < 1 || c->group > INT32_MAX))
        plim_nn_fail(&h->n, PLIM_ERANGE, "'group_size' is %" PRId64 ", expected -1 or 1..%d",
                     c->group, (int)INT32_MAX);
    check_word(h, "format", c->format, formats);
}

static void read_storage(plim_hf *h, plim_hf_quant *q)
{
    plim_str name = q->c.storage;
    if (!plim_dtype_find(name, &q->storage) || plim_dtype_rows[q->storage].bits < 8)
        plim_nn_fail(&h->n, PLIM_EUNSUPPORTED,
                     "'bnb_4bit_quant_storage' is '" PLIM_STR_FMT
                     "', which is not a data type",
                     (int)PLIM_MIN(name.n, (size_t)40), name.p);
}

static void check_config(plim_hf *h, const config *c, const method *m)
{
    if (m->formats)
        check_words(h, c, m->formats);
    check_word(h, "activation_scheme", c->scheme, "dynamic");
    check_word(h, "scale_fmt", c->scale, "float ue8m0");
    check_word(h, "expert_dtype", c->expert, "fp8");
    plim_hf_refuse(h, c->unpacks, "dequantize");
    plim_hf_refuse(h, c->wide, "llm_int8_has_fp16_weight");
    plim_hf_refuse(h, c->head, "lm_head");
    plim_hf_refuse(h, is_filled(c->dynamic), "dynamic");
    plim_hf_refuse(h, is_filled(c->only), "modules_in_block_to_quantize");
    plim_hf_refuse(h, is_filled(c->also), "modules_to_convert");
}

static void read_group(plim_hf *h, config *c)
{
    static const plim_hf_group group = {
        .keys = group_keys, .n_keys = PLIM_COUNT(group_keys), .loose = true};
    if (!c->groups.n)
        plim_nn_fail(&h->n, PLIM_EUNSUPPORTED,
                     "'quantization_config' has no 'config_groups.group_0'");
    plim_hf_refuse(h, is_filled(c->second), "config_groups.group_1");
    if (h->n.st)
        return;
    plim_hf_read(h, c->groups, &group, c);
    check_word(h, "weights.type", c->type, "int float");
    check_word(h, "weights.strategy", c->strategy, "tensor channel group");
    if (c->bits != 8 && (c->bits != 4 || plim_str_is(c->type, "float")))
        plim_nn_fail(&h->n, PLIM_EUNSUPPORTED,
                     "weights of %" PRId64 " bits are not supported, only 4 (int) and 8",
                     c->bits);
    if (plim_str_is(c->strategy, "group") && (c->group < 1 || c->group > INT32_MAX))
        plim_nn_fail(&h->n, PLIM_ERANGE, "'group_size' is %" PRId64 ", not in 1..%d", c->group,
                     (int)INT32_MAX);
}

static void refuse_method(plim_hf *h, plim_str name)
{
    plim_buf list;
    if (!name.n) {
        plim_nn_fail(&h->n, PLIM_EUNSUPPORTED, "'quantization_config' has no 'quant_method'");
        return;
    }
    plim_buf_init(&list, h->n.g->arena);
    for (size_t i = 0; i < PLIM_COUNT(methods); i++)
        plim_buf_printf(&list, "%s%s", i ? ", " : "", methods[i].name);
    plim_nn_fail(&h->n, PLIM_EUNSUPPORTED,
                 "quantization method '" PLIM_STR_FMT "' is not supported, only " PLIM_STR_FMT,
                 (int)PLIM_MIN(name.n, (size_t)40), name.p, PLIM_STR_ARG(plim_buf_str(&list)));
}

void plim_hf_quant_open(plim_hf *h, plim_str raw)
{
    static const plim_hf_group group = {
        .keys = keys, .n_keys = PLIM_COUNT(keys), .loose = true};
    plim_hf_quant *q = PLIM_NEW(h->n.g->arena, plim_hf_quant);
    if (!q || h->n.st) {
        plim_hf_oom(&h->n);
        return;
    }
    if (!plim_str_starts(raw, "{")) {
        plim_nn_fail(&h->n, PLIM_EUNSUPPORTED, "'quantization_config' is not an object");
        return;
    }
    plim_hf_read(h, raw, &group, &q->c);
    q->m = find_method(&q->c);
    if (!q->m)
        refuse_method(h, q->c.method);
    if (!q->m || h->n.st)
        return;
    h->quant = q;
    if (q->m->pack == pack_compressed)
        read_group(h, &q->c);
    check_config(h, &q->c, q->m);
    read_storage(h, q);
    read_block(h, q);
    if (!q->m->type)
        return;
    read_skip(h, q);
    h->n.linear = make_linear;
}

bool plim_hf_quant_used(const plim_hf *h) { return h->quant && h->quant->modules; }

static const plim_hf_quant_row quants[] = {
#define PLIM_QUANT(name, config, doc, src) {name, config, doc, src},
#include "import/hf/hf_quants.def"
#undef PLIM_QUANT
};

uint32_t plim_hf_quant_count(void) { return PLIM_COUNT(quants); }

const plim_hf_quant_row *plim_hf_quant_at(uint32_t i)
{
    return i < PLIM_COUNT(quants) ? &quants[i] : NULL;
}

plim_status plim_hf_quant_find(plim_str name, plim_str *out, plim_err *err)
{
    char word[64];
    snprintf(word, sizeof word, PLIM_STR_FMT, (int)PLIM_MIN(name.n, sizeof word - 1), name.p);
    const plim_hf_quant_row *row = plim_row_find("format of weights", word, quants,
                                                 PLIM_COUNT(quants), sizeof *quants, err);
    *out = plim_str_of(row ? row->config : "");
    return row ? PLIM_OK : PLIM_EUSAGE;
}

uint64_t plim_hf_quant_weights(const plim_hf *h)
{
    return plim_hf_quant_used(h) ? h->quant->weights : 0;
}

plim_str plim_hf_quant_note(const plim_hf *h)
{
    const plim_hf_quant *q = h->quant;
    if (!plim_hf_quant_used(h))
        return PLIM_STR("");
    return plim_arena_printf(
        h->n.g->arena,
        "%s weights of %s modules are quantized (%s): they are listed as buffers",
        plim_fmt_count(q->weights).s, plim_fmt_count(q->modules).s, q->m->name);
}
