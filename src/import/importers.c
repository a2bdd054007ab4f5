/* importers.c -- the only list of file formats.  The highest probe wins; on a
 * tie, the earlier row. */
#include "import/import.h"

#define IMPORTERS(X)                                                                          \
    X(pt2)                                                                                    \
    X(onnx)                                                                                   \
    X(hf)                                                                                     \
    X(timm)                                                                                   \
    X(diffusers)                                                                              \
    X(pipeline)                                                                               \
    X(safetensors)                                                                            \
    X(index)                                                                                  \
    X(gguf)                                                                                   \
    X(torch)                                                                                  \
    X(megatron)

#define X(name) extern const plim_importer plim_importer_##name;
IMPORTERS(X)
#undef X

#define X(name) &plim_importer_##name,
static const plim_importer *const importers[] = {IMPORTERS(X)};
#undef X

uint32_t plim_importer_count(void) { return PLIM_COUNT(importers); }

const plim_importer *plim_importer_at(uint32_t i)
{
    return i < PLIM_COUNT(importers) ? importers[i] : NULL;
}

int plim_importer_score(const plim_importer *im, plim_bytes b)
{
    return im->probe(
        im->asks ? b : (plim_bytes){.p = b.p, .n = PLIM_MIN(b.n, (uint64_t)PLIM_PROBED)});
}

const plim_importer *plim_importer_probe(plim_bytes b)
{
    const plim_importer *best = NULL;
    int score = 0;
    for (size_t i = 0; i < PLIM_COUNT(importers); i++) {
        int s = plim_importer_score(importers[i], b);
        if (s > score) {
            score = s;
            best = importers[i];
        }
    }
    return best;
}

plim_status plim_importer_for(plim_bytes b, const plim_importer **out, plim_err *err)
{
    *out = plim_importer_probe(b);
    return *out && !(*out)->asks ? plim_bytes_need(b, 0, b.n, err) : PLIM_OK;
}
