/* oom_cause.c -- why memory ran out, from the numbers of a message: see oom.h.
 *
 * The numbers are rounded to 0.01 of their unit, so a comparison holds here only if it
 * holds for every value that they may have had, and sums are called "about". */
#include <stdio.h>

#include "base/fmt.h"
#include "gpu/gpu.h"
#include "oom/oom.h"

typedef struct cause_case {
    plim_arena *arena;
    const plim_oom_view *view;
    plim_oom_message *out;
    uint64_t others; /* bytes of the other processes that the message names */
    plim_str card;   /* "--gpu rtx3090", "--vram 23.64GiB" */
} cause_case;

static const plim_oom_number *number_of(const cause_case *c, plim_oom_quantity q)
{
    return &c->view->number[q];
}
static bool is_known(const cause_case *c, plim_oom_quantity q)
{
    return plim_oom_known(number_of(c, q));
}

/* The bounds of a quantity that is known. */
static uint64_t low_of(const plim_oom_number *n)
{
    return n->bytes > n->within ? n->bytes - n->within : 0;
}
static uint64_t high_of(const plim_oom_number *n) { return n->bytes + n->within; }

/* "9.74 GiB", or "about 9.46 GiB" if it is a sum or difference. */
static plim_text show_number(const cause_case *c, plim_oom_quantity q)
{
    plim_text bytes = plim_fmt_bytes(number_of(c, q)->bytes, false), t;
    snprintf(t.s, sizeof t.s, "%s%.20s", number_of(c, q)->derived ? "about " : "", bytes.s);
    return t;
}

/* ---- numbers that follow from others ------------------------------------- */

/* a + b or a - b; unknown if one of them is, or if the difference is negative. */
static plim_oom_number derive_number(const plim_oom_number *a, const plim_oom_number *b,
                                     bool minus)
{
    plim_oom_number unknown = {UINT64_MAX, 0, false};
    if (!plim_oom_known(a) || !plim_oom_known(b) || (minus && high_of(a) < low_of(b)))
        return unknown;
    uint64_t bytes = !minus                ? a->bytes + b->bytes
                     : a->bytes > b->bytes ? a->bytes - b->bytes
                                           : 0;
    return (plim_oom_number){bytes, a->within + b->within, true};
}

static void derive_numbers(plim_oom_number *n)
{
    if (!plim_oom_known(&n[PLIM_OOM_UNALLOCATED]))
        n[PLIM_OOM_UNALLOCATED] =
            derive_number(&n[PLIM_OOM_RESERVED], &n[PLIM_OOM_ALLOCATED], true);
    if (!plim_oom_known(&n[PLIM_OOM_RESERVED]))
        n[PLIM_OOM_RESERVED] =
            derive_number(&n[PLIM_OOM_ALLOCATED], &n[PLIM_OOM_UNALLOCATED], false);
    n[PLIM_OOM_OUTSIDE] = derive_number(&n[PLIM_OOM_PROCESS], &n[PLIM_OOM_RESERVED], true);
    if (!plim_oom_known(&n[PLIM_OOM_ELSEWHERE])) {
        plim_oom_number used = derive_number(&n[PLIM_OOM_TOTAL], &n[PLIM_OOM_FREE], true);
        bool process = plim_oom_known(&n[PLIM_OOM_PROCESS]);
        n[PLIM_OOM_ELSEWHERE] =
            derive_number(&used, &n[process ? PLIM_OOM_PROCESS : PLIM_OOM_RESERVED], true);
    }
}

/* ---- the card ------------------------------------------------------------ */

/* Drivers differ in what they reserve of the same card. */
#define CARD_TOLERANCE (64ull << 20)

static plim_status find_cards(cause_case *c, plim_err *err)
{
    const plim_oom_number *total = number_of(c, PLIM_OOM_TOTAL);
    const plim_gpu *only = NULL;
    const char **names = NULL;
    uint32_t n = 0, cap = 0;
    for (uint32_t i = 0; plim_oom_known(total) && i < plim_gpu_count(); i++) {
        const plim_gpu *g = plim_gpu_at(i);
        uint64_t off = g->memory_bytes > total->bytes ? g->memory_bytes - total->bytes
                                                      : total->bytes - g->memory_bytes;
        if (off > CARD_TOLERANCE + total->within ||
            strcmp(g->vendor, c->view->device->vendor) != 0)
            continue;
        if (!PLIM_PUSH_ROOM(c->arena, names, n, cap))
            return plim_oom(err);
        names[n++] = g->name;
        only = g;
    }
    c->out->cards = names;
    c->out->n_cards = n;
    if (n == 1)
        c->card = plim_arena_printf(c->arena, " --gpu %.*s", (int)strcspn(only->aliases, ","),
                                    only->aliases);
    else if (plim_oom_known(total))
        c->card = plim_arena_printf(c->arena, " --vram %.2fGiB",
                                    (double)total->bytes / (double)(1ull << 30));
    else
        c->card = PLIM_STR("");
    return c->card.p ? PLIM_OK : plim_oom(err);
}

/* ---- causes -------------------------------------------------------------- */

/* Is a certainly at least b? */
static bool is_at_least(const cause_case *c, plim_oom_quantity a, plim_oom_quantity b)
{
    return is_known(c, a) && is_known(c, b) &&
           low_of(number_of(c, a)) >= high_of(number_of(c, b));
}

/* What the request needs beyond the free memory; 0: unknown or nothing. */
static uint64_t missing_bytes(const cause_case *c)
{
    const plim_oom_number *tried = number_of(c, PLIM_OOM_TRIED),
                          *free = number_of(c, PLIM_OOM_FREE);
    return plim_oom_known(tried) && plim_oom_known(free) && tried->bytes > free->bytes
               ? tried->bytes - free->bytes
               : 0;
}

static bool is_torch(const cause_case *c) { return c->out->source == PLIM_OOM_BY_TORCH; }

static bool holds_absurd(const cause_case *c) { return c->view->absurd; }
static plim_str say_absurd(const cause_case *c)
{
    return plim_arena_printf(c->arena,
                             "The request was for more than 2^60 bytes, so a size in "
                             "the script is wrong: it is negative or overflowed.");
}

static bool holds_too_large(const cause_case *c)
{
    return is_at_least(c, PLIM_OOM_TRIED, PLIM_OOM_TOTAL);
}
static plim_str say_too_large(const cause_case *c)
{
    return plim_arena_printf(c->arena,
                             "The request alone, %s, is larger than the card, %s: no setting "
                             "of the allocator helps.",
                             show_number(c, PLIM_OOM_TRIED).s,
                             show_number(c, PLIM_OOM_TOTAL).s);
}

/* May what is held and the request pass the limit? */
static bool holds_limit(const cause_case *c)
{
    plim_oom_quantity held =
        is_known(c, PLIM_OOM_RESERVED) ? PLIM_OOM_RESERVED : PLIM_OOM_ALLOCATED;
    if (!is_known(c, PLIM_OOM_ALLOWED) || !is_known(c, PLIM_OOM_TRIED) || !is_known(c, held))
        return false;
    uint64_t sum = high_of(number_of(c, held)) + high_of(number_of(c, PLIM_OOM_TRIED));
    if (c->out->source == PLIM_OOM_BY_MPS && is_known(c, PLIM_OOM_ELSEWHERE))
        sum += high_of(number_of(c, PLIM_OOM_ELSEWHERE));
    return sum > low_of(number_of(c, PLIM_OOM_ALLOWED));
}
static plim_str say_limit(const cause_case *c)
{
    if (c->out->source == PLIM_OOM_BY_MPS)
        return plim_arena_printf(
            c->arena, "The request of %s exceeds the limit of the process, %s.",
            show_number(c, PLIM_OOM_TRIED).s, show_number(c, PLIM_OOM_ALLOWED).s);
    return plim_arena_printf(
        c->arena,
        "The request of %s exceeds the limit of this process, %s, which "
        "set_per_process_memory_fraction set%s.",
        show_number(c, PLIM_OOM_TRIED).s, show_number(c, PLIM_OOM_ALLOWED).s,
        missing_bytes(c) ? "" : "; the card itself has enough free memory");
}

/* Blocks of private pools are not in `unallocated`. */
static bool holds_pieces(const cause_case *c)
{
    return is_torch(c) && !holds_too_large(c) &&
           is_at_least(c, PLIM_OOM_UNALLOCATED, PLIM_OOM_TRIED);
}
static plim_str say_pieces(const cause_case *c)
{
    return plim_arena_printf(c->arena,
                             "Fragmentation: PyTorch holds %s that no tensor uses, more than "
                             "the %s requested, but in pieces that are each too small.",
                             show_number(c, PLIM_OOM_UNALLOCATED).s,
                             show_number(c, PLIM_OOM_TRIED).s);
}

static bool holds_pieces_and_free(const cause_case *c)
{
    uint64_t missing = missing_bytes(c);
    return is_torch(c) && missing && !holds_pieces(c) && !holds_too_large(c) &&
           is_known(c, PLIM_OOM_UNALLOCATED) &&
           low_of(number_of(c, PLIM_OOM_UNALLOCATED)) >= missing;
}
static plim_str say_pieces_and_free(const cause_case *c)
{
    return plim_arena_printf(c->arena,
                             "Fragmentation: %s free on the card and %s that PyTorch holds "
                             "unused would be enough together, but not in one piece.",
                             show_number(c, PLIM_OOM_FREE).s,
                             show_number(c, PLIM_OOM_UNALLOCATED).s);
}

static bool holds_others(const cause_case *c)
{
    return c->others && !holds_too_large(c) && is_known(c, PLIM_OOM_PROCESS);
}
static plim_str say_others(const cause_case *c)
{
    bool one = c->out->n_processes == 1;
    uint64_t missing = missing_bytes(c);
    plim_str held = plim_arena_printf(c->arena, "%s %s on this card",
                                      one ? "Another process holds" : "Other processes hold",
                                      plim_fmt_bytes(c->others, false).s);
    if (!held.p)
        return held;
    if (!missing)
        return plim_arena_printf(c->arena, PLIM_STR_FMT ".", PLIM_STR_ARG(held));
    if (c->others <= missing)
        return plim_arena_printf(c->arena, PLIM_STR_FMT ", less than the request lacks.",
                                 PLIM_STR_ARG(held));
    return plim_arena_printf(c->arena,
                             PLIM_STR_FMT "; without %s the request would have fitted.",
                             PLIM_STR_ARG(held), one ? "it" : "them");
}

/* A process that the message does not recognise as its own, as in a container, whose
 * process numbers are not those of the driver. */
static bool holds_stranger(const cause_case *c)
{
    return c->others && !is_known(c, PLIM_OOM_PROCESS);
}
static plim_str say_stranger(const cause_case *c)
{
    bool own = c->out->n_processes == 1 && is_known(c, PLIM_OOM_RESERVED) &&
               c->others >= low_of(number_of(c, PLIM_OOM_RESERVED));
    return plim_arena_printf(
        c->arena,
        own ? "The process that the message names holds %s: probably this one itself, which "
              "in a container does not know the number that the driver gives it."
            : "The processes that the message names hold %s; this process may be among them, "
              "which in a container does not know the number that the driver gives it.",
        plim_fmt_bytes(c->others, false).s);
}

static bool holds_hidden(const cause_case *c)
{
    const uint64_t notable = 512ull << 20;
    return !c->others && is_known(c, PLIM_OOM_PROCESS) && is_known(c, PLIM_OOM_ELSEWHERE) &&
           low_of(number_of(c, PLIM_OOM_ELSEWHERE)) >= notable;
}
static plim_str say_hidden(const cause_case *c)
{
    return plim_arena_printf(c->arena,
                             "Processes that the message does not name hold %s: a display, or "
                             "processes outside this container.",
                             show_number(c, PLIM_OOM_ELSEWHERE).s);
}

static bool holds_spilled(const cause_case *c)
{
    return is_at_least(c, PLIM_OOM_RESERVED, PLIM_OOM_TOTAL) ||
           is_at_least(c, PLIM_OOM_ALLOCATED, PLIM_OOM_TOTAL);
}
static plim_str say_spilled(const cause_case *c)
{
    plim_oom_quantity held =
        is_known(c, PLIM_OOM_RESERVED) ? PLIM_OOM_RESERVED : PLIM_OOM_ALLOCATED;
    return plim_arena_printf(c->arena,
                             "PyTorch holds %s on a card of %s: the driver has moved the rest "
                             "to system memory, as it does on Windows, and that ran out too.",
                             show_number(c, held).s, show_number(c, PLIM_OOM_TOTAL).s);
}

static bool holds_refused(const cause_case *c)
{
    return is_at_least(c, PLIM_OOM_FREE, PLIM_OOM_TRIED) && !holds_limit(c);
}
static plim_str say_refused(const cause_case *c)
{
    return plim_arena_printf(
        c->arena, "The driver refused %s although %s is free: %s.",
        show_number(c, PLIM_OOM_TRIED).s, show_number(c, PLIM_OOM_FREE).s,
        c->view->without_limit
            ? "a limit by set_per_process_memory_fraction, which PyTorch 2.1 to 2.4 does not "
              "print, or a limit of the driver, as on Windows and WSL"
            : "a limit of the driver, as on Windows and WSL, or memory that another process "
              "freed in the meantime");
}

static bool holds_shortage(const cause_case *c)
{
    return missing_bytes(c) && !holds_too_large(c) && !holds_pieces(c) &&
           !holds_pieces_and_free(c);
}
static plim_str say_shortage(const cause_case *c)
{
    plim_text missing = plim_fmt_bytes(missing_bytes(c), false);
    if (!is_known(c, PLIM_OOM_ALLOCATED))
        return plim_arena_printf(c->arena, "The card is full: about %s more was needed.",
                                 missing.s);
    return plim_arena_printf(c->arena,
                             "The card is full: about %s more was needed; tensors of this "
                             "process take %s.",
                             missing.s, show_number(c, PLIM_OOM_ALLOCATED).s);
}

static bool holds_private(const cause_case *c)
{
    return is_known(c, PLIM_OOM_PRIVATE) && number_of(c, PLIM_OOM_PRIVATE)->bytes;
}
static plim_str say_private(const cause_case *c)
{
    return plim_arena_printf(
        c->arena, "CUDA graphs keep %s in private pools, which nothing else can use.",
        show_number(c, PLIM_OOM_PRIVATE).s);
}

static bool holds_outside(const cause_case *c)
{
    const uint64_t notable = 2ull << 30;
    return is_known(c, PLIM_OOM_OUTSIDE) && low_of(number_of(c, PLIM_OOM_OUTSIDE)) >= notable;
}
static plim_str say_outside(const cause_case *c)
{
    return plim_arena_printf(
        c->arena,
        "This process uses %s outside PyTorch's allocator: for the CUDA context, and "
        "libraries such as NCCL or another framework.",
        show_number(c, PLIM_OOM_OUTSIDE).s);
}

/* Not PyTorch's allocator: there are no numbers, only who failed. */
static bool holds_foreign(const cause_case *c)
{
    return c->out->source >= PLIM_OOM_BY_CUDA ||
           (c->out->source == PLIM_OOM_BY_ASYNC && !is_known(c, PLIM_OOM_TRIED));
}
static plim_str say_foreign(const cause_case *c)
{
    static const char *const say[PLIM_OOM_SOURCE_COUNT] = {
        [PLIM_OOM_BY_ASYNC] = "The card is full; CUDA's own allocator (cudaMallocAsync) "
                              "reports no more than that here.",
        [PLIM_OOM_BY_CUDA] = "CUDA ran out of memory outside PyTorch's allocator: while it "
                             "created its context, loaded a kernel or pinned host memory, or "
                             "in a library.",
        [PLIM_OOM_BY_CUBLAS] =
            "cuBLAS could not get memory for its handle, which it takes from "
            "CUDA and not from PyTorch's allocator; an invalid index in an "
            "earlier kernel can cause the same error.",
        [PLIM_OOM_BY_CUDNN] = "cuDNN could not get memory for its handle, which it takes from "
                              "CUDA and not from PyTorch's allocator; libraries of different "
                              "versions can cause the same error.",
        [PLIM_OOM_BY_JAX] =
            "JAX ran out of memory; by default it takes 75 % of a card when it "
            "starts, and fails in what is left if another process uses the card.",
        [PLIM_OOM_BY_TENSORFLOW] = "TensorFlow ran out of memory; by default it takes nearly "
                                   "the whole card when it starts.",
        [PLIM_OOM_BY_HOST] = "The machine, not a card, ran out of memory: a tensor was "
                             "requested on the CPU. A request this size may also come from a "
                             "wrong shape.",
        [PLIM_OOM_BY_LLAMA_CPP] =
            "llama.cpp could not get memory for a buffer: of weights, of "
            "the cache, or of what a step computes.",
        [PLIM_OOM_BY_VLLM] = "vLLM has no room for its cache: it takes what the share of the "
                             "card, gpu_memory_utilization, leaves after the weights and the "
                             "largest step.",
        [PLIM_OOM_BY_CUPY] = "CuPy ran out of memory; its pool keeps what arrays have freed, "
                             "until get_default_memory_pool().free_all_blocks().",
    };
    return plim_str_of(say[c->out->source]);
}

static bool holds_nothing(const cause_case *c) { return !c->out->n_causes; }
static plim_str say_nothing(const cause_case *c)
{
    return plim_arena_printf(c->arena, "The card is full; the message says no more.");
}

/* In the order of their weight. */
static const struct {
    bool (*holds)(const cause_case *c);
    plim_str (*say)(const cause_case *c);
} causes[] = {
    {holds_absurd, say_absurd},       {holds_foreign, say_foreign},
    {holds_too_large, say_too_large}, {holds_limit, say_limit},
    {holds_refused, say_refused},     {holds_spilled, say_spilled},
    {holds_pieces, say_pieces},       {holds_pieces_and_free, say_pieces_and_free},
    {holds_shortage, say_shortage},   {holds_others, say_others},
    {holds_stranger, say_stranger},   {holds_hidden, say_hidden},
    {holds_outside, say_outside},     {holds_private, say_private},
    {holds_nothing, say_nothing},
};

static plim_status list_causes(cause_case *c, plim_err *err)
{
    const char **list = PLIM_NEW_N(c->arena, const char *, PLIM_COUNT(causes));
    if (!list)
        return plim_oom(err);
    c->out->causes = list;
    for (size_t i = 0; i < PLIM_COUNT(causes); i++) {
        if (!causes[i].holds(c))
            continue;
        plim_str said = causes[i].say(c);
        if (!said.p)
            return plim_oom(err);
        list[c->out->n_causes++] = said.p;
    }
    return PLIM_OK;
}

/* ---- what helps ---------------------------------------------------------- */

static bool is_host(const cause_case *c) { return c->out->source == PLIM_OOM_BY_HOST; }
static plim_str command_host(const cause_case *c)
{
    (void)c;
    return PLIM_STR("free -h");
}

static bool helps_processes(const cause_case *c)
{
    return !is_host(c) && (holds_others(c) || holds_stranger(c) || holds_hidden(c) ||
                           holds_foreign(c) || holds_refused(c));
}
static plim_str command_processes(const cause_case *c)
{
    return plim_str_of(c->view->device->monitor);
}

/* In pieces, against which the allocator has settings. */
static bool in_pieces(const cause_case *c)
{
    return c->view->device->variable && (holds_pieces(c) || holds_pieces_and_free(c));
}
static bool helps_expandable(const cause_case *c)
{
    return in_pieces(c) && !c->view->no_expandable && !c->view->expandable_on;
}
static plim_str command_expandable(const cause_case *c)
{
    return plim_arena_printf(c->arena, "export %s=expandable_segments:True",
                             c->view->device->variable);
}

static bool helps_split(const cause_case *c) { return in_pieces(c) && c->view->no_expandable; }
static plim_str command_split(const cause_case *c)
{
    return plim_arena_printf(c->arena, "export %s=max_split_size_mb:128",
                             c->view->device->variable);
}

static plim_str command_fraction(const cause_case *c)
{
    return c->out->source == PLIM_OOM_BY_MPS
               ? PLIM_STR("export PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0")
               : PLIM_STR("torch.cuda.set_per_process_memory_fraction(1.0)");
}

static bool helps_less(const cause_case *c)
{
    return c->out->source <= PLIM_OOM_BY_CUBLAS || c->out->source == PLIM_OOM_BY_CUDNN;
}
static plim_str command_estimate(const cause_case *c)
{
    return plim_arena_printf(c->arena, "plimsoll estimate MODEL" PLIM_STR_FMT,
                             PLIM_STR_ARG(c->card));
}
static plim_str command_fit(const cause_case *c)
{
    return plim_arena_printf(c->arena, "plimsoll fit MODEL" PLIM_STR_FMT,
                             PLIM_STR_ARG(c->card));
}

static bool helps_serve(const cause_case *c)
{
    return c->out->source == PLIM_OOM_BY_LLAMA_CPP || c->out->source == PLIM_OOM_BY_VLLM;
}
static plim_str command_serve(const cause_case *c)
{
    return c->out->source == PLIM_OOM_BY_VLLM
               ? PLIM_STR("plimsoll serve MODEL --engine vllm")
               : PLIM_STR("plimsoll serve MODEL.gguf --engine llama.cpp");
}
static bool helps_batch(const cause_case *c) { return helps_less(c) && !c->view->absurd; }

static const struct {
    bool (*holds)(const cause_case *c);
    const char *text;
    plim_str (*command)(const cause_case *c);
} remedies[] = {
    {holds_limit, "Raise the limit of the process.", command_fraction},
    {helps_expandable, "Let segments grow instead of being split.", command_expandable},
    {helps_split,
     "Keep large blocks from being split (PyTorch 2.1 and later: expandable_segments:True).",
     command_split},
    {helps_processes,
     "See which processes hold memory on the card, and end those that are "
     "not needed.",
     command_processes},
    {is_host,
     "See how much memory the machine has, and make the tensor on the card or smaller.",
     command_host},
    {helps_batch, "See what takes the memory in a step of the model.", command_estimate},
    {helps_batch, "Find the largest batch for this card.", command_fit},
    {helps_serve, "See what the engine holds of the model.", command_serve},
};

static plim_status list_remedies(cause_case *c, plim_err *err)
{
    plim_oom_remedy *rows = PLIM_NEW_N(c->arena, plim_oom_remedy, PLIM_COUNT(remedies));
    const plim_oom_remedy **list =
        PLIM_NEW_N(c->arena, const plim_oom_remedy *, PLIM_COUNT(remedies));
    if (!rows || !list)
        return plim_oom(err);
    c->out->remedies = list;
    for (size_t i = 0; i < PLIM_COUNT(remedies); i++) {
        if (!remedies[i].holds(c))
            continue;
        plim_str command = remedies[i].command(c);
        if (!command.p)
            return plim_oom(err);
        rows[i] = (plim_oom_remedy){remedies[i].text, command.p};
        list[c->out->n_remedies++] = &rows[i];
    }
    return PLIM_OK;
}

/* Those that are known. */
static plim_status list_numbers(cause_case *c, plim_err *err)
{
    const plim_oom_number **list =
        PLIM_NEW_N(c->arena, const plim_oom_number *, PLIM_OOM_QUANTITY_COUNT);
    if (!list)
        return plim_oom(err);
    for (int q = 0; q < PLIM_OOM_QUANTITY_COUNT; q++)
        list[q] = is_known(c, (plim_oom_quantity)q) ? &c->view->number[q] : NULL;
    c->out->numbers = list;
    c->out->n_numbers = PLIM_OOM_QUANTITY_COUNT;
    return PLIM_OK;
}

plim_status plim_oom_explain(plim_arena *a, plim_oom_view *view, plim_oom_message *out,
                             plim_err *err)
{
    cause_case c = {.arena = a, .view = view, .out = out};
    derive_numbers(view->number);
    for (uint32_t i = 0; i < out->n_processes; i++)
        if (out->processes[i]->memory)
            c.others = plim_sat_add(c.others, out->processes[i]->memory->bytes);
    PLIM_TRY(list_numbers(&c, err));
    PLIM_TRY(find_cards(&c, err));
    PLIM_TRY(list_causes(&c, err));
    return list_remedies(&c, err);
}
