/* engines.c -- the list of engines: see serve.h. */
#include "serve/serve.h"

#include <stdio.h>

static const plim_engine engines[] = {
#define PLIM_ENGINE(id, name, options, kv, formats, flags, apart, doc, src)                   \
    {name, options, kv, formats, flags, apart, doc, src, &plim_engine_##id},
#include "serve/engines.def"
#undef PLIM_ENGINE
};

uint32_t plim_engine_count(void) { return PLIM_COUNT(engines); }

const plim_engine *plim_engine_at(uint32_t i)
{
    return i < PLIM_COUNT(engines) ? &engines[i] : NULL;
}

const plim_engine *plim_engine_find(plim_str name, plim_err *err)
{
    char word[64];
    snprintf(word, sizeof word, PLIM_STR_FMT, (int)PLIM_MIN(name.n, sizeof word - 1), name.p);
    return plim_row_find("engine", word, engines, PLIM_COUNT(engines), sizeof *engines, err);
}

const plim_engine *plim_engine_usual(bool file)
{
    const plim_engine *e = engines;
    while (!(e->flags & PLIM_ENGINE_FILES) == file && e + 1 < engines + PLIM_COUNT(engines))
        e++;
    return e;
}
