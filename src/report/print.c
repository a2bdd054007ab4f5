/* print.c -- has a report add its blocks, and writes them in a rendering: see blocks.h. */
#include "report/blocks.h"

void plim_report_model_line(plim_page *p, const plim_model_info *m)
{
    plim_line(p, plim_dot(p), 0);
    plim_say_as(p, PLIM_PAINT_BOLD, "%s", m->name);
    plim_say(p, m->packed_weights ? "%s parameters, %s of them quantized" : "%s parameters",
             plim_fmt_metric(plim_sat_add(m->parameters, m->packed_weights)).s,
             plim_fmt_metric(m->packed_weights).s);
    plim_say(p, "%s", m->format ? m->format : "");
    if (m->releases && *m->releases)
        plim_say(p, "%s", m->releases);
    if (m->origin && *m->origin)
        plim_say(p, "%s", m->origin);
    if (!plim_report_whole(m))
        plim_say_as(p, PLIM_PAINT_WARN, "incomplete");
}

bool plim_report_whole(const plim_model_info *m) { return !m->left_out || !*m->left_out; }

/* ---- notes ------------------------------------------------------------------- */

static const char *note_of(const plim_model_info *m) { return m->note ? m->note : ""; }

/* What the notes of the models say: once where it is the same, else each with the name of its model. */
static plim_str join_notes(plim_page *p, const plim_report *report, const void *subject)
{
    const plim_model_info *m, *first = report->model ? report->model(subject, 0) : NULL;
    bool same = true;
    plim_buf b;
    plim_buf_init(&b, &p->arena);
    for (uint32_t i = 1; first && (m = report->model(subject, i)); i++)
        same = same && !strcmp(note_of(m), note_of(first));
    if (first && same)
        plim_buf_puts(&b, note_of(first));
    for (uint32_t i = 0; first && !same && (m = report->model(subject, i)); i++)
        if (*note_of(m))
            plim_buf_printf(&b, "%s%s: %s", b.n ? "; " : "", m->name, note_of(m));
    p->buf.bad |= b.bad;
    return plim_page_clean(p, plim_buf_str(&b).p); /* names in it are a file's */
}

/* ---- renderings --------------------------------------------------------------- */

typedef struct rendering {
    const char *key, *title, *doc;
    plim_block_kind needs;
    bool in_pieces, with_text;
    plim_status (*write)(plim_page *p, plim_err *err);
} rendering;

static const rendering renderings[] = {
#define RENDERING(id, name, called, what, ...)                                                \
    [PLIM_##id] = {.key = #name,                                                              \
                   .title = called,                                                           \
                   .doc = "print " what,                                                      \
                   .write = plim_render_##name,                                               \
                   __VA_ARGS__},
#include "report/renderings.def"
#undef RENDERING
};

bool plim_rendering_at(uint32_t i, plim_rendering_info *out)
{
    static const rendering none = {.key = "", .doc = ""};
    const bool there = i < PLIM_COUNT(renderings);
    const rendering *r = there ? &renderings[i] : &none;
    const plim_rendering_info of = {.size = sizeof of,
                                    .render = (plim_render)i,
                                    .key = r->key,
                                    .doc = r->doc,
                                    .with_text = r->with_text};
    plim_copy_out(out, &of, PLIM_MIN(out->size, sizeof of));
    return there;
}

static plim_status write_report(plim_page *p, const plim_report *report, const void *subject,
                                const rendering *as, plim_err *err)
{
    PLIM_TRY(report->build(p, subject, err));
    plim_note(p, p->note);
    if (p->buf.bad)
        return plim_oom(err);
    if (as->needs && !plim_block_find(p->first, as->needs))
        return plim_fail(err, PLIM_EUNSUPPORTED, 0, "'%s' has no %s rendering", report->name,
                         as->title);
    return as->write(p, err);
}

plim_status plim_report_print(const plim_report *report, const void *subject, plim_render how,
                              const plim_style *st, plim_put put, void *ud, plim_err *err)
{
    plim_page p;
    if (!subject)
        return plim_fail(err, PLIM_EUSAGE, 0, "'%s': the result to print is NULL",
                         report->name);
    PLIM_REQUIRE(put, err);
    if (st && st->size <= sizeof st->size)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "the size of the style is %zu: initialize it with PLIM_STYLE_INIT",
                         st->size);
    if ((size_t)how >= PLIM_COUNT(renderings))
        return plim_fail(err, PLIM_EUSAGE, 0, "rendering %d is not in 0..%d", (int)how,
                         (int)PLIM_COUNT(renderings) - 1);
    plim_page_open(&p, st);
    if (renderings[how].in_pieces)
        plim_buf_put(&p.buf, put, ud);
    p.note = join_notes(&p, report, subject);
    return plim_page_send(&p, write_report(&p, report, subject, &renderings[how], err), put,
                          ud, err);
}
