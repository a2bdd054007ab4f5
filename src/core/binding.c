/* binding.c -- see binding.h. */
#include "core/binding.h"

#include "base/fmt.h"

/* The text before the separator; *rest becomes the text after it. */
static plim_str cut_before(plim_str *rest, char sep)
{
    const char *p = rest->n ? memchr(rest->p, sep, rest->n) : NULL;
    size_t n = p ? (size_t)(p - rest->p) : rest->n;
    plim_str head = {rest->p, n};
    *rest = (plim_str){rest->p + n + (p != NULL), rest->n - n - (p != NULL)};
    return head;
}

plim_status plim_binding_inputs(plim_arena *a, const char *text, plim_binding *bind,
                                plim_err *err)
{
    plim_str rest = plim_str_of(text);
    if (!text)
        return PLIM_OK;
    struct plim_input_shape *list = NULL;
    uint32_t n = 0, cap = 0;
    while (rest.n) {
        plim_str shape = cut_before(&rest, ';'), name = {NULL, 0};
        if (memchr(shape.p, '=', shape.n))
            name = cut_before(&shape, '=');
        if (!PLIM_PUSH_ROOM(a, list, n, cap))
            return plim_oom(err);
        list[n] = (struct plim_input_shape){.name = plim_arena_str(a, name)};
        if (!list[n].name.p)
            return plim_oom(err);
        plim_status st =
            plim_parse_shape(shape, list[n].dim, PLIM_MAX_RANK, &list[n].rank, err);
        if (st) {
            plim_err_prefix(err, "input: ");
            return st;
        }
        n++;
    }
    bind->inputs = list;
    bind->n_inputs = n;
    return PLIM_OK;
}

plim_status plim_binding_dims(plim_arena *a, const char *text, plim_binding *bind,
                              plim_err *err)
{
    plim_str rest = plim_str_of(text);
    struct plim_dim_value *list = NULL;
    uint32_t n = 0, cap = 0;
    while (text && rest.n) {
        plim_str value = cut_before(&rest, ';'), name = {NULL, 0};
        int64_t dim;
        if (memchr(value.p, '=', value.n))
            name = cut_before(&value, '=');
        if (!name.n || !plim_parse_dim(value, &dim) || dim < 1)
            return plim_fail(err, PLIM_EUSAGE, 0,
                             "'" PLIM_STR_FMT "%s" PLIM_STR_FMT
                             "' is not a size: write NAME=N with N above 0",
                             PLIM_STR_ARG(name), name.n ? "=" : "", PLIM_STR_ARG(value));
        if (!PLIM_PUSH_ROOM(a, list, n, cap))
            return plim_oom(err);
        list[n] = (struct plim_dim_value){plim_arena_str(a, name), dim};
        if (!list[n++].name.p)
            return plim_oom(err);
    }
    bind->dims = list;
    bind->n_dims = n;
    return PLIM_OK;
}

plim_status plim_binding_images(const char *text, plim_binding *bind, plim_err *err)
{
    enum { MOST = 1 << 16 };
    plim_str rest = plim_str_of(text);
    struct plim_images *x = &bind->images;
    if (!text)
        return PLIM_OK;
    x->sized = strchr(text, 'x') && !strchr(text, '@');
    plim_str count = x->sized ? PLIM_STR("1") : cut_before(&rest, '@');
    plim_str width = cut_before(&rest, 'x');
    bool sized = x->sized || width.n || rest.n;
    x->given = plim_parse_dim(count, &x->count) && x->count >= 0 && x->count <= MOST;
    if (sized)
        x->given &= plim_parse_dim(width, &x->width) && plim_parse_dim(rest, &x->height) &&
                    PLIM_MIN(x->width, x->height) > 0 && PLIM_MAX(x->width, x->height) <= MOST;
    return x->given
               ? PLIM_OK
               : plim_fail(
                     err, PLIM_EUSAGE, 0,
                     "images: '%s' is not N, WIDTHxHEIGHT or N@WIDTHxHEIGHT, with numbers up to %d",
                     text, (int)MOST);
}

plim_status plim_binding_audio(const char *text, plim_binding *bind, plim_err *err)
{
    enum { MOST = 1 << 30, MOST_SECONDS = 1 << 16 };
    plim_str rest = plim_str_of(text ? text : "");
    struct plim_audio *x = &bind->audio;
    if (!text)
        return PLIM_OK;
    const bool timed = rest.n && rest.p[rest.n - 1] == 's';
    rest.n -= timed;
    const bool good =
        timed ? plim_parse_double(rest, &x->seconds) && x->seconds >= 0.001 &&
                    x->seconds <= MOST_SECONDS
              : plim_parse_dim(rest, &x->samples) && x->samples > 0 && x->samples <= MOST;
    return good ? PLIM_OK
                : plim_fail(err, PLIM_EUSAGE, 0,
                            "audio: '%s' is not a length such as 30s, up to %ds, or a number "
                            "of samples up to %d",
                            text, (int)MOST_SECONDS, (int)MOST);
}
