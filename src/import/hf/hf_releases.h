/* hf_releases.h -- releases of transformers, as numbers (446 is 4.46): which are known, and what was compared with them.
 *
 * The rules that changed are rows of releases.def, which the groups test for. */
#ifndef PLIM_HF_RELEASES_H
#define PLIM_HF_RELEASES_H

#include "base/base.h"

/* The release since which something holds. */
enum plim_hf_since {
#define HF_COMPARED(release, types)
#define HF_TYPES(rule, release, types)
#define HF_SINCE(release, name, doc) PLIM_HF_SINCE_##name = release,
#include "import/hf/releases.def"
#undef HF_SINCE
#undef HF_TYPES
#undef HF_COMPARED
};

enum {
    PLIM_HF_OLDEST = 438, /* of older ones nothing is known */
    PLIM_HF_OLDEST_FILE =
        517, /* files say which release wrote them; those of older ones are read with newer ones */
    PLIM_HF_NEWEST = 524,
};

/* What some model types do since one release, and others since another: see releases.def. */
typedef enum plim_hf_change {
    PLIM_HF_SDPA,
    PLIM_HF_CASTS,
    PLIM_HF_LOSS,
    PLIM_HF_FUNCTIONS,
} plim_hf_change;

/* "4.46" or "4.46.3" as 446; NULL: 0.  PLIM_EUSAGE: it is no version, or older than all that are known. */
plim_status plim_hf_release_parse(const char *text, int *out, plim_err *err);
/* "4.46" for 446, in `a`; {NULL, 0}: out of memory. */
plim_str plim_hf_release_name(plim_arena *a, int release);
/* Whether runs of this release were compared, of this model type. */
bool plim_hf_release_compared(int release, plim_str model_type);
/* Whether any release before PLIM_HF_OLDEST_FILE was, of this model type. */
bool plim_hf_release_known(plim_str model_type);
/* Whether a model type follows the rule in this release. */
bool plim_hf_release_follows(int release, plim_hf_change rule, plim_str model_type);

#endif
