/* load.c -- loads libplimsoll as ctypes does, and asks it for one number: load LIBRARY
 *
 * tools/dist_check.py compiles it for musl, where it stands for a Python. */
#include <dlfcn.h>
#include <plimsoll.h>
#include <stdio.h>
#include <string.h>

/* A pointer of the type of the function to what the library has under its name. */
#define FIND(name)                                                                            \
    __typeof__(&name) own_##name = NULL;                                                      \
    found = dlsym(library, #name);                                                            \
    memcpy(&own_##name, &found, sizeof found);                                                \
    if (!found)                                                                               \
        return fprintf(stderr, "no %s: %s\n", #name, dlerror()), 1;

int main(int argc, char **argv)
{
    plim_err err = PLIM_ERR_INIT;
    plim_model *model = NULL;
    plim_settings *s = NULL;
    plim_fit *fit = NULL;
    void *found, *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library)
        return fprintf(stderr, "%s\n", argc > 1 ? dlerror() : "usage: load LIBRARY"), 1;
    FIND(plim_model_open)
    FIND(plim_settings_new)
    FIND(plim_settings_set)
    FIND(plim_fit_run)
    if (own_plim_model_open("resnet18", &model, &err) || own_plim_settings_new(&s, &err) ||
        own_plim_settings_set(s, "gpu", "t4", &err) || own_plim_fit_run(model, s, &fit, &err))
        return fprintf(stderr, "%s\n", err.msg), 1;
    printf("%s: batch %lld\n", fit->cards[0]->gpu, (long long)fit->cards[0]->batch);
    return 0;
}
