/* names.c -- the models of the Hugging Face hub that are built in: names.def. */
#include "zoo/zoo.h"

static const plim_zoo_model names_models[] = {
#define ROW(name_, type, year_, count, weights_, hub, also, members)                          \
    {.name = name_,                                                                           \
     .alias = hub " " also,                                                                   \
     .doc = hub,                                                                              \
     .src = "huggingface.co/" hub,                                                            \
     .parameters = count,                                                                     \
     .year = year_,                                                                           \
     .weights = weights_,                                                                     \
     .model_type = type,                                                                      \
     .config = "{\"model_type\": \"" type "\", " members "}"},
/* "#__VA_ARGS__" is the row's configuration as text. */
#define MODEL(name, type, year, count, hub, also, ...)                                        \
    ROW(name, type, year, count, NULL, hub, also, #__VA_ARGS__)
#define PACKED(name, type, year, count, weights, hub, also, ...)                              \
    ROW(name, type, year, count, weights, hub, also, #__VA_ARGS__)
#include "zoo/names.def"
#undef PACKED
#undef MODEL
#undef ROW
};

PLIM_ZOO_FAMILY(names, "hub");
