/* names.c -- the models of the Hugging Face hub that are built in: names.def. */
#include "zoo/zoo.h"

static const plim_zoo_model names_models[] = {
/* "#__VA_ARGS__" is the row's configuration as text. */
#define MODEL(name_, type, count, hub, also, ...)                                             \
    {.name = name_,                                                                           \
     .alias = hub " " also,                                                                   \
     .doc = hub,                                                                              \
     .src = "huggingface.co/" hub,                                                            \
     .parameters = count,                                                                     \
     .model_type = type,                                                                      \
     .config = "{\"model_type\": \"" type "\", " #__VA_ARGS__ "}"},
#include "zoo/names.def"
#undef MODEL
};

PLIM_ZOO_FAMILY(names, "hub");
