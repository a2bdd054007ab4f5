/* largest_batch.c -- the largest batch of a model that can be trained on a card.
 *
 *     largest_batch MODEL CARD [OPTIMIZER] */
#include <plimsoll.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    plim_err err = PLIM_ERR_INIT;
    plim_model *model = NULL;
    plim_settings *s = NULL;
    plim_fit *fit = NULL;
    if (argc < 3) {
        fprintf(stderr, "usage: largest_batch MODEL CARD [OPTIMIZER]\n");
        return 2;
    }
    if (plim_model_open(argv[1], &model, &err) || plim_settings_new(&s, &err) ||
        plim_settings_set(s, "gpu", argv[2], &err) ||
        plim_settings_set(s, "optimizer", argc > 3 ? argv[3] : NULL, &err) ||
        plim_fit_run(model, s, &fit, &err))
        fprintf(stderr, "%s\n", err.msg);
    else
        for (uint32_t i = 0; i < fit->n_cards; i++)
            printf("%s: batch %lld\n", fit->cards[i]->gpu, (long long)fit->cards[i]->batch);
    plim_fit_free(fit);
    plim_settings_free(s);
    plim_model_free(model);
    return err.code ? 1 : 0;
}
