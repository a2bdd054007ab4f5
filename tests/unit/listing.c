/* listing.c -- see listing.h. */
#include "listing.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/fmt.h"

plim_bytes listing_map(const char *fmt, ...)
{
    char name[512], path[1024];
    plim_bytes b = {0};
    plim_err err = PLIM_ERR_INIT;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    snprintf(path, sizeof path, LISTING_DATA "%s", name);
    if (plim_file_read(&b, path, &err))
        fail_msg("%s", err.msg);
    return b;
}

plim_status listing_file(plim_inventory *v, plim_arena *a, const char *name, plim_err *err)
{
    char path[1024];
    plim_bytes b = listing_map("%s", name);
    const plim_importer *im = plim_importer_probe(b);
    snprintf(path, sizeof path, LISTING_DATA "%s", name);
    *v = (plim_inventory){.arena = a};
    CHECK(name, im && im->list);
    plim_status st = im->list(v, &(plim_source){.bytes = b, .path = path}, err);
    plim_file_close(&b); /* v must not refer to the mapping */
    return st;
}

plim_status listing_bytes(plim_inventory *v, plim_arena *a, const plim_importer *im,
                          plim_bytes b, plim_err *err)
{
    *v = (plim_inventory){.arena = a};
    return im->list(v, &(plim_source){.bytes = b}, err);
}

/* ---- against what others read ------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return plim_str_compare(((const plim_item *)a)->name, ((const plim_item *)b)->name);
}

void listing_check_golden(const plim_inventory *v, const char *name)
{
    char path[1024];
    plim_bytes want = {0};
    plim_err err = PLIM_ERR_INIT;
    plim_arena a = PLIM_ARENA_INIT;
    plim_buf got;
    snprintf(path, sizeof path, PLIM_SOURCE_DIR "/tests/golden/weights/%s.txt", name);
    if (plim_file_read(&want, path, &err))
        fail_msg("%s", err.msg);
    plim_item *items = PLIM_NEW_N(&a, plim_item, (uint64_t)v->n_items + 1);
    memcpy(items, v->items, v->n_items * sizeof *items);
    qsort(items, v->n_items, sizeof *items, by_name);
    plim_buf_init(&got, &a);
    for (uint32_t i = 0; i < v->n_items; i++) {
        const plim_item *it = &items[i];
        plim_buf_printf(&got, PLIM_STR_FMT "\t" PLIM_STR_FMT "\t%s", PLIM_STR_ARG(it->name),
                        PLIM_STR_ARG(it->type), it->rank ? "" : "scalar");
        for (int32_t k = 0; k < it->rank; k++)
            plim_buf_printf(&got, "%s%" PRId64, k ? "x" : "", it->dim[k]);
        plim_buf_printf(&got, "\t%" PRIu64 "\n", it->bytes);
    }
    plim_str text = plim_arena_str(&a, (plim_str){(const char *)want.p, (size_t)want.n});
    CHECK_STR(name, plim_buf_str(&got).p, text.p);
    plim_arena_free(&a);
    plim_file_close(&want);
}

void listing_check_all(const listing_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_inventory v;
        if (listing_file(&v, &a, cases[i].file, &err))
            fail_msg("%s: %s", cases[i].file, err.msg);
        listing_check_golden(&v, cases[i].golden);
        CHECK(cases[i].file, plim_str_is(v.format, cases[i].format));
        plim_arena_free(&a);
    }
}

const char *listing_fact(const plim_inventory *v, const char *key)
{
    for (uint32_t i = 0; i < v->n_facts; i++)
        if (plim_str_is(v->facts[i].key, key))
            return v->facts[i].value.p;
    return "";
}

bool listing_noted(const plim_inventory *v, const char *part)
{
    for (uint32_t i = 0; i < v->n_notes; i++)
        if (strstr(v->notes[i].p, part))
            return true;
    return false;
}

/* ---- damage -------------------------------------------------------------------------- */

static void survive(const plim_importer *im, plim_bytes b)
{
    plim_arena a = {.limit = 64u << 20};
    plim_err err = PLIM_ERR_INIT;
    plim_inventory v;
    plim_status st = listing_bytes(&v, &a, im, b, &err);
    assert_int_equal(st, err.code);
    assert_true(!st || (err.msg[0] && st != PLIM_ENOMEM));
    (void)plim_importer_probe(b);
    plim_arena_free(&a);
}

void listing_survive(const plim_importer *im, const char *name)
{
    plim_bytes b = listing_map("%s", name);
    uint8_t *p = malloc((size_t)b.n);
    assert_non_null(p);
    memcpy(p, b.p, (size_t)b.n);
    for (uint64_t n = 0; n <= b.n; n++)
        survive(im, (plim_bytes){.p = p, .n = n});
    for (uint64_t i = 0; i < b.n; i++) {
        const uint8_t changed[] = {(uint8_t)~p[i], p[i] ^ 1, 0xff};
        for (size_t k = 0; k < sizeof changed; k++) {
            p[i] = changed[k];
            survive(im, (plim_bytes){.p = p, .n = b.n});
        }
        p[i] = b.p[i];
    }
    free(p);
    plim_file_close(&b);
}

void listing_starve(const char *name)
{
    plim_status st = PLIM_ENOMEM;
    uint64_t n = 1;
    for (; st; n++) {
        plim_arena a = {.fail_after = n};
        plim_err err = PLIM_ERR_INIT;
        plim_inventory v;
        st = listing_file(&v, &a, name, &err);
        CHECK(name, (st == PLIM_OK || st == PLIM_ENOMEM) && err.code == st);
        plim_arena_free(&a);
    }
    CHECK("it takes more than a few", n > 5);
}
