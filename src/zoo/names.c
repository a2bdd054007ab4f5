/* names.c -- the models of the Hugging Face hub that are built in: names.def, and networks of timm and
 * torchvision, networks.def. */
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
#include "zoo/names.def"
#include "zoo/networks.def"
#undef NETWORK
#undef PACKED
#undef MODEL
#undef ROW
};

PLIM_ZOO_FAMILY(names, "hub");
