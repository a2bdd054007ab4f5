/* loop.c -- see loop.h. */
#include "step/loop.h"

#include "base/fmt.h"

/* The Trainer does not return `outputs` (compute_loss), fetches all batches of a step at once
 * (get_batch_samples), clips at max_grad_norm = 1 and ends a step with zero_grad.  The loss
 * that it logs shares its storage with the loss that backward used, and is held until the next
 * one. */
static const plim_loop loops[] = {
    /* settings/loops.def says what each is */
    {.name = "typical", .keeps = PLIM_KEEP_INPUTS | PLIM_KEEP_OUTPUTS | PLIM_KEEP_LOSS},
    {.name = "loss_only",
     .keeps = PLIM_KEEP_INPUTS | PLIM_KEEP_LOSS,
     .labels_are_inputs = true},
    {.name = "tight", .zero_grad_last = true},
    {
        .name = "trainer",
        .keeps = PLIM_KEEP_INPUTS | PLIM_KEEP_LOSS,
        .zero_grad_last = true,
        .fetch_all = true,
        .clip = true,
        .no_cache =
            true, /* self.model.config.use_cache = self.args.use_cache, which is False */
    },
    {.name = "megatron", .local_inputs = true},
};

plim_status plim_loop_find(const char *name, const plim_loop **out, plim_err *err)
{
    *out = plim_row_find("loop", name, loops, PLIM_COUNT(loops), sizeof *loops, err);
    return *out ? PLIM_OK : PLIM_EUSAGE;
}

const plim_loop *plim_loop_usual(bool own_loss) { return &loops[own_loss ? 1 : 0]; }

static const struct {
    const char *name;
    unsigned keeps;
} held[] = {{"none", 0},
            {"inputs", PLIM_KEEP_INPUTS},
            {"outputs", PLIM_KEEP_OUTPUTS},
            {"loss", PLIM_KEEP_LOSS}};

plim_status plim_loop_keeps(const char *list, unsigned *out, plim_err *err)
{
    unsigned keeps = 0;
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        plim_str word = {at, strcspn(at, ",")};
        size_t i = 0;
        while (i < PLIM_COUNT(held) && !plim_str_is(word, held[i].name))
            i++;
        if (i == PLIM_COUNT(held))
            return plim_fail(err, PLIM_EUSAGE, 0,
                             "unknown --keep item '" PLIM_STR_FMT
                             "': known are outputs, loss, inputs, none",
                             PLIM_STR_ARG(word));
        keeps |= held[i].keeps;
    }
    *out = keeps;
    return PLIM_OK;
}

plim_str plim_loop_keeps_text(plim_arena *a, unsigned keeps)
{
    plim_str text = {"", 0};
    for (size_t i = 0; i < PLIM_COUNT(held) && text.p; i++)
        if (keeps & held[i].keeps)
            text = plim_arena_printf(a, PLIM_STR_FMT "%s%s", PLIM_STR_ARG(text),
                                     text.n ? "," : "", held[i].name);
    return text.p && !text.n ? plim_arena_printf(a, "none") : text;
}
