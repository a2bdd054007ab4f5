/* data.c -- writes blocks for programs: figures as JSON, a sheet as CSV, a picture as SVG. */
#include "report/blocks.h"

plim_status plim_render_json(plim_page *p, plim_err *err)
{
    (void)err;
    const plim_block *b = plim_block_find(p->first, PLIM_BLOCK_DATA);
    bool several = plim_block_find(b->next, PLIM_BLOCK_DATA) != NULL;
    plim_jw w;
    plim_jw_init(&w, &p->buf);
    if (several)
        plim_jw_array(&w);
    for (; b; b = plim_block_find(b->next, PLIM_BLOCK_DATA)) {
        plim_jw_object(&w);
        plim_jw_key(&w, "schema");
        plim_jw_cstr(&w, b->schema);
        if (b->list)
            plim_rows_json(&w, b->list, &b->rows);
        else
            plim_figures_json(&w, b->figures, b->of, b->own);
        plim_jw_end(&w);
    }
    if (several)
        plim_jw_end(&w);
    plim_page_puts(p, "\n");
    return PLIM_OK;
}

plim_status plim_render_csv(plim_page *p, plim_err *err)
{
    return plim_rows_csv(p, &plim_block_find(p->first, PLIM_BLOCK_SHEET)->rows, err);
}

plim_status plim_render_svg(plim_page *p, plim_err *err)
{
    const plim_block *b = plim_block_find(p->first, PLIM_BLOCK_PICTURE);
    return b->draw(p, b->of, err);
}
