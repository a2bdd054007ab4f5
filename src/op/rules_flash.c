/* rules_flash.c -- attention by the package flash-attn, as transformers calls it.
 *
 * Its kernels want [batch, tokens, heads, size] or, of sequences that are not of one length, all tokens in a row: then a
 * tensor says where each begins.  Heads may share keys.  Its allocations are those of its sources, which no run of the
 * package was compared with.
 * src: flash-attention 2.8 flash_attn/flash_attn_interface.py FlashAttnFunc, FlashAttnVarlenFunc;
 * csrc/flash_attn/flash_api.cpp mha_fwd, mha_bwd, mha_varlen_fwd, mha_varlen_bwd; transformers 5.24
 * integrations/flash_attention.py, modeling_flash_attention_utils.py */
#include "op/rules.h"

enum { F_Q, F_K, F_V, F_OUT, F_LSE, F_STARTS, F_STATE }; /* saved slots */
enum { F_SIZE, F_SEQUENCES };                            /* in gnode.i */
enum { ALIGN = 8 };                                      /* of the size of a head */

typedef struct flash_made {
    plim_t out, lse, state;
} flash_made;

/* ---- the kernels ------------------------------------------------------------------------------ */

/* Memory of a kernel: an estimate, as no run of the package was compared. */
static plim_t take_sums(plim_machine *m, plim_dtype t, int32_t rank, const int64_t *dim)
{
    const plim_meta all = plim_meta_make(t, rank, dim);
    uint64_t bytes = 0;
    if (!plim_meta_bytes(&all, &bytes))
        return plim_m_scratch_of(m, t, rank, dim); /* reports the overflow */
    return plim_m_scratch_range(m, bytes, bytes, bytes);
}

/* With heads of a size that is a multiple. */
static plim_t pad_heads(plim_machine *m, plim_t x)
{
    const int64_t pad[2] = {0, -plim_dim_at(plim_m_meta(m, x), -1) & (ALIGN - 1)};
    return pad[1] ? plim_at_pad(m, x, 2, pad) : plim_m_ref(m, x);
}

/* Of one query for each head: those that share keys are as the tokens of one head. */
static plim_t swap_groups(plim_machine *m, plim_t q, int64_t shared)
{
    const plim_meta *x = plim_m_meta(m, q);
    plim_t split = plim_at_reshape(
        m, q, 4, (int64_t[]){x->dim[0], shared, x->dim[2] / shared, x->dim[3]});
    plim_t y = plim_at_transpose(m, split, 1, 2);
    plim_m_drop(m, split);
    return y;
}

/* q, k: [batch, tokens, heads, size] */
static flash_made run_even(plim_machine *m, plim_t q, plim_t k, bool dropout)
{
    const plim_meta *km = plim_m_meta(m, k), *given = plim_m_meta(m, q);
    const bool swaps = given->dim[1] == 1 && given->dim[2] > km->dim[2] && !dropout;
    plim_t of = swaps ? swap_groups(m, q, km->dim[2]) : plim_m_ref(m, q);
    const plim_meta x = *plim_m_meta(m, of);
    const plim_sdpa_size d = {x.dim[0], x.dim[2], x.dim[1], km->dim[1], x.dim[3]};
    const int64_t two = 2, rows[] = {d.batch, d.heads, d.queries};
    const int64_t splits = dropout ? 1 : plim_flash_splits(m, &d);
    plim_t part[2] = {0, 0};
    flash_made made = {.out = plim_m_empty_like(m, of)};
    made.lse = plim_m_empty_contig(m, PLIM_F32, 3, rows);
    if (splits > 1) {
        part[0] = take_sums(m, PLIM_F32, 4, (int64_t[]){splits, rows[0], rows[1], rows[2]});
        part[1] = take_sums(
            m, PLIM_F32, 5,
            (int64_t[]){splits, rows[0], rows[1], rows[2], plim_flash_width(d.size)});
    }
    made.state = plim_m_empty_contig(m, PLIM_I64, 1, &two);
    plim_m_drop(m, part[0]);
    plim_m_drop(m, part[1]);
    plim_m_drop(m, of);
    if (swaps) { /* a view: the result of each query is in one piece */
        plim_meta back = *plim_m_meta(m, q);
        plim_meta_contiguous(&back);
        plim_t y = plim_m_alias(m, made.out, &back);
        plim_m_drop(m, made.out);
        made.out = y;
    }
    return made;
}

/* q: [tokens, heads, size] */
static flash_made run_uneven(plim_machine *m, plim_t q)
{
    const plim_meta *x = plim_m_meta(m, q);
    const int64_t two = 2, rows[] = {x->dim[1], x->dim[0]};
    flash_made made = {.out = plim_m_empty_like(m, q)};
    made.lse = plim_m_empty_contig(m, PLIM_F32, 2, rows);
    made.state = plim_m_empty_contig(m, PLIM_I64, 1, &two);
    return made;
}

/* Sums of rows, and the gradients of queries in fp32; where heads share keys, gradients of keys and values for each. */
static void make_sums(plim_machine *m, const plim_meta *q, const plim_meta *k,
                      int64_t sequences)
{
    enum { ROWS = 128 };
    const int32_t r = q->rank;
    const int64_t heads = q->dim[r - 2], size = q->dim[r - 1], width = plim_flash_width(size);
    plim_t tmp[4] = {0};
    if (sequences) {
        const int64_t rows = (int64_t)PLIM_MIN(
            plim_sat_add((uint64_t)q->dim[0], (uint64_t)plim_dim_mul(ROWS, sequences)),
            (uint64_t)INT64_MAX);
        tmp[0] = take_sums(m, PLIM_F32, 2, (int64_t[]){heads, rows});
        tmp[1] = take_sums(m, PLIM_F32, 3, (int64_t[]){rows, heads, width});
    } else {
        const int64_t batch = q->dim[0], rows = plim_dim_round_up(q->dim[1], ROWS);
        tmp[0] = take_sums(m, PLIM_F32, 3, (int64_t[]){batch, heads, rows});
        tmp[1] = take_sums(m, PLIM_F32, 4, (int64_t[]){batch, rows, heads, width});
    }
    plim_meta each = *k;
    plim_set_dim(&each, r - 2, heads);
    for (int i = 2; i < 4 && k->dim[r - 2] != heads; i++)
        tmp[i] = take_sums(m, each.dtype, each.rank, each.dim);
    for (size_t i = PLIM_COUNT(tmp); i-- > 0;)
        plim_m_drop(m, tmp[i]);
}

/* ---- the autograd function ------------------------------------------------------------------------ */

/* q, k, v: [.., heads, size] */
static void count_products(plim_machine *m, const plim_meta *q, const plim_meta *k,
                           uint64_t times)
{
    uint64_t macs = 0;
    plim_meta_numel(q, &macs);
    macs = plim_sat_mul(macs, (uint64_t)k->dim[k->rank - 3]);
    plim_m_product(m, PLIM_WORK_attention, plim_sat_mul(macs, times), q->dtype);
    plim_m_side(m, (uint64_t)PLIM_MAX(plim_dim_at(q, -1), 1));
}

static void flash_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t in[3], made[3];
    for (uint32_t i = 0; i < 3; i++) {
        in[i] = plim_m_saved(m, n, F_Q + i);
        made[i] = plim_m_empty_like(m, in[i]);
    }
    plim_t wide = pad_heads(m, g[0]);
    count_products(m, plim_m_meta(m, in[0]), plim_m_meta(m, in[1]), 5);
    make_sums(m, plim_m_meta(m, in[0]), plim_m_meta(m, in[1]), n->i[F_SEQUENCES]);
    for (uint32_t i = 0; i < 3; i++) {
        if (plim_m_wants(m, n, i))
            dx[i] =
                plim_at_narrow(m, made[i], plim_m_meta(m, made[i])->rank - 1, n->i[F_SIZE]);
        plim_m_drop(m, made[i]);
    }
    plim_m_drop(m, wide);
}
static const plim_grad_fn flash_fn = {"FlashAttnFuncBackward", flash_backward};
static const plim_grad_fn uneven_fn = {"FlashAttnVarlenFuncBackward", flash_backward};

/* q, k, v and, of tokens in a row, where sequences begin. */
static bool check_shapes(plim_machine *m, const plim_t in[3], plim_t starts)
{
    const plim_meta *q = plim_m_meta(m, in[0]), *k = plim_m_meta(m, in[1]),
                    *v = plim_m_meta(m, in[2]), *at = starts ? plim_m_meta(m, starts) : NULL;
    const int32_t rank = starts ? 3 : 4, heads = 1; /* before they are transposed */
    char a[96], b[96];
    if (q->rank == rank && k->rank == rank && v->rank == rank && q->dim[rank - 1] > 0 &&
        q->dim[rank - 1] == k->dim[rank - 1] && q->dim[rank - 1] == v->dim[rank - 1] &&
        k->dim[heads] > 0 && q->dim[heads] % k->dim[heads] == 0 &&
        k->dim[heads] == v->dim[heads] && (!at || (at->rank == 1 && at->dim[0] > 0)))
        return true;
    plim_m_fail(m, PLIM_ESHAPE, "attention: query %s and key %s do not match",
                plim_meta_str(q, a, sizeof a), plim_meta_str(k, b, sizeof b));
    return false;
}

static bool check_kernel(plim_machine *m, const plim_meta *q)
{
    const bool half = q->dtype == PLIM_F16 || q->dtype == PLIM_BF16;
    if (!half && !plim_m_shapes_only(m))
        plim_m_fail(
            m, PLIM_EUNSUPPORTED,
            "attention flash: flash-attn computes in fp16 or bf16, and the queries are "
            "%s: use --dtype bf16, --autocast bf16, or another --attention",
            plim_dtype_name(q->dtype));
    else if (!plim_world_since(plim_m_world(m), 80))
        plim_m_fail(m, PLIM_EUNSUPPORTED,
                    "attention flash: flash-attn needs a card of compute capability 8.0 or "
                    "newer (Ampere)");
    else if (plim_dim_at(q, -1) > 256)
        plim_m_fail(m, PLIM_EUNSUPPORTED,
                    "attention flash: heads of flash-attn have at most 256 elements, not "
                    "%" PRId64,
                    plim_dim_at(q, -1));
    return !plim_m_bad(m);
}

/* The result, owned.  starts: of sequences of different lengths; longest: the length of the longest, which the context of
 * the function keeps; or 0 */
static plim_t run_function(plim_machine *m, const plim_t in[3], bool dropout, plim_t starts,
                           plim_t longest)
{
    plim_gnode *n = plim_m_node(m, starts ? &uneven_fn : &flash_fn, 3, in);
    const bool mode = plim_m_grad_mode(m);
    const int64_t size = plim_dim_at(plim_m_meta(m, in[0]), -1);
    plim_t x[3];
    plim_m_set_grad_mode(m, false);
    for (int i = 0; i < 3; i++)
        x[i] = pad_heads(m, in[i]);
    count_products(m, plim_m_meta(m, x[0]), plim_m_meta(m, x[1]), 2);
    flash_made made = starts ? run_uneven(m, x[0]) : run_even(m, x[0], x[1], dropout);
    for (uint32_t i = 0; i < 3; i++)
        plim_m_save(m, n, F_Q + i, x[i]);
    plim_m_save(m, n, F_OUT, made.out);
    plim_m_save(m, n, F_LSE, made.lse);
    plim_m_save(m, n, F_STARTS, starts);
    plim_m_save(m, n, F_STATE, made.state);
    if (n && longest)
        plim_m_hold(m, n, longest);
    if (n) {
        n->i[F_SIZE] = size;
        n->i[F_SEQUENCES] = starts ? plim_m_meta(m, starts)->dim[0] - 1 : 0;
    }
    plim_t y = plim_at_narrow(m, made.out, plim_m_meta(m, made.out)->rank - 1, size);
    plim_m_drop(m, made.out);
    plim_m_drop(m, made.lse);
    plim_m_drop(m, made.state);
    for (int i = 0; i < 3; i++)
        plim_m_drop(m, x[i]);
    plim_m_set_grad_mode(m, mode);
    plim_m_output(m, n, 0, y);
    return y;
}

/* [batch, heads, tokens, size] as [batch, tokens, heads, size], or tokens in a row as they are. */
void plim_run_flash_attention(plim_call *c)
{
    plim_machine *m = c->m;
    const plim_t starts = plim_arg_tensor(c, 4), longest = plim_arg_tensor(c, 5);
    const bool dropout = !plim_m_world(m)->eval && plim_arg_float(c, 3, 0.0) > 0.0;
    const plim_t in[] = {plim_arg_tensor(c, 0), plim_arg_tensor(c, 1), plim_arg_tensor(c, 2)};
    plim_t x[3];
    if (!check_shapes(m, in, starts) || !check_kernel(m, plim_m_meta(m, in[0])))
        return;
    for (uint32_t i = 0; i < 3; i++)
        x[i] = starts ? plim_m_ref(m, in[i]) : plim_at_transpose(m, in[i], 1, 2);
    plim_ret(c, run_function(m, x, dropout, starts, longest));
    for (int i = 0; i < 3; i++)
        plim_m_drop(m, x[i]);
}

/* ---- sequences of different lengths ---------------------------------------------------------------- */

/* nonzero(), where so many are true */
void plim_run_true_places(plim_call *c)
{
    const int64_t dim[] = {PLIM_MAX(plim_arg_int(c, 1, 0), 0), 1};
    uint64_t all = 0;
    plim_meta_numel(plim_m_meta(c->m, plim_arg_tensor(c, 0)), &all);
    plim_t y = plim_m_empty_contig(c->m, PLIM_I64, 2, dim);
    plim_nonzero_scratch(c->m, all);
    plim_ret(c, y);
}

static void put_rows_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)g;
    dx[0] = plim_m_empty_contig(m, n->in_meta[0].dtype, n->in_meta[0].rank, n->in_meta[0].dim);
}
static const plim_grad_fn put_rows_fn = {"IndexPutFirstAxisBackward", put_rows_backward};

void plim_run_put_rows(plim_call *c)
{
    plim_machine *m = c->m;
    plim_t values = plim_arg_tensor(c, 0);
    plim_meta all = *plim_m_meta(m, values);
    if (!all.rank) {
        plim_m_fail(m, PLIM_ESHAPE, "a number has no rows");
        return;
    }
    plim_set_dim(&all, 0, PLIM_MAX(plim_arg_int(c, 2, 0), 0));
    plim_meta_contiguous(&all);
    plim_gnode *n = plim_m_node(m, &put_rows_fn, 1, &values);
    plim_m_save(m, n, 0, plim_arg_tensor(c, 1));
    plim_t y = plim_m_empty(m, &all);
    plim_m_output(m, n, 0, y);
    plim_ret(c, y);
}
