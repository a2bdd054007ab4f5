/* names.c -- the models of the Hugging Face hub that are built in: names.def, networks of timm,
 * torchvision and ultralytics, networks.def, and pipelines of diffusers, pipelines.def. */
#include "zoo/zoo.h"

static const plim_zoo_model names_models[] = {
#define ROW(name_, type, of, year_, count, weights_, doc_, src_, also, members)               \
    {.name = name_,                                                                           \
     .alias = also,                                                                           \
     .doc = doc_,                                                                             \
     .src = src_,                                                                             \
     .parameters = count,                                                                     \
     .year = year_,                                                                           \
     .weights = weights_,                                                                     \
     .library = of,                                                                           \
     .model_type = type,                                                                      \
     .config = "{\"model_type\": \"" type "\", " members "}"},
/* "#__VA_ARGS__" is the row's configuration as text. */
#define MODEL(name, type, year, count, hub, also, ...)                                        \
    ROW(name, type, NULL, year, count, NULL, hub, "huggingface.co/" hub, hub " " also,        \
        #__VA_ARGS__)
#define PACKED(name, type, year, count, weights, hub, also, ...)                              \
    ROW(name, type, NULL, year, count, weights, hub, "huggingface.co/" hub, hub " " also,     \
        #__VA_ARGS__)
#define NETWORK(library, name, count, doc, src, also, classes)                                \
    ROW(library ":" name, library ":" name, library, 0, count, NULL, doc, src, also,          \
        "\"num_classes\": " #classes)
/* Parts that several have are macros, which are replaced before their text is taken; so are those of stdbool.h. */
#undef true
#undef false
#define TEXT(...) #__VA_ARGS__
#define PIPELINE(name_, class, year_, count, hub, also, ...)                                  \
    {.name = name_,                                                                           \
     .alias = hub " " also,                                                                   \
     .doc = hub,                                                                              \
     .src = "huggingface.co/" hub,                                                            \
     .parameters = count,                                                                     \
     .year = year_,                                                                           \
     .model_type = "diffusers:pipeline",                                                      \
     .config = "{\"_class_name\": \"" class "\", " TEXT(__VA_ARGS__) "}"},
#include "zoo/names.def"
#include "zoo/networks.def"
#include "zoo/pipelines.def"
#undef NETWORK
#undef PIPELINE
#undef TEXT
#undef PACKED
#undef MODEL
#undef ROW
};

PLIM_ZOO_FAMILY(names, "hub");
