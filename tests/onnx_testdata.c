/* onnx_testdata.c -- reads every ONNX file below the folders that it is given and counts:
 * which open, whose outputs our rules find without looking at the file's own, which are
 * refused and why.  A size that differs from the file's is an error.
 *
 *     onnx_testdata [--list] FOLDER...        (Debian's libonnx-testdata has 1072 files)
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "import/onnx/onnx_priv.h"
#include "op/op.h"

extern const plim_importer plim_importer_onnx;

typedef struct counts {
    unsigned files, refused, equal, partly, wrong, crashed;
    bool list;
} counts;

/* ---- a file that does not say how large its results are ------------------------------- */

enum { UNKNOWN_FIELD = 15 << 3 | ONNX_BYTES };

static void hide_shape(uint8_t *p, onnx_wire type)
{
    onnx_field f, s;
    while (plim_onnx_next(&type, &f)) {
        if (f.number != 1)
            continue;
        onnx_wire tensor = plim_onnx_message(&type, &f);
        while (plim_onnx_next(&tensor, &s))
            if (s.number == 2)
                p[s.at] = UNKNOWN_FIELD;
    }
}

static void hide_infos(uint8_t *p, onnx_wire graph)
{
    onnx_field f, v;
    while (plim_onnx_next(&graph, &f)) {
        if (f.number != 12 && f.number != 13)
            continue;
        onnx_wire info = plim_onnx_message(&graph, &f);
        while (plim_onnx_next(&info, &v))
            if (v.number == 2)
                hide_shape(p, plim_onnx_message(&info, &v));
    }
}

static void hide_results(uint8_t *p, uint64_t n)
{
    onnx_wire w = plim_onnx_wire((plim_bytes){.p = p, .n = n}, NULL);
    onnx_field f;
    while (plim_onnx_next(&w, &f))
        if (f.number == 7)
            hide_infos(p, plim_onnx_message(&w, &f));
}

/* ---- one file ---------------------------------------------------------------------------- */

static bool same(const onnx_info *told, const plim_meta *m)
{
    const onnx_type *t = plim_onnx_type(told->type);
    if (!told->tensor || !t || !t->known)
        return true;
    if (t->dtype != m->dtype)
        return false;
    if (!told->has_shape)
        return true;
    bool ok = told->rank == m->rank;
    for (int32_t d = 0; ok && d < m->rank; d++)
        ok = !told->dim[d].known || told->dim[d].value == m->dim[d];
    return ok;
}

/* -1: differs; else how many of the outputs were found. */
static int compare(const onnx_graph *told, const plim_graph *g, char *text, size_t n)
{
    bool all = g->n_outputs == told->n_outputs;
    int found = 0;
    for (uint32_t i = 0; i < told->n_outputs; i++)
        for (uint32_t k = 0; k < g->n_outputs; k++) {
            const plim_value *v = &g->values[g->outputs[k]];
            if (all ? i != k : !plim_str_eq(v->name, told->outputs[i].name))
                continue;
            found++;
            if (!same(&told->outputs[i], &v->meta)) {
                char dims[120];
                snprintf(text, n, "output %u is %s %s", (unsigned)i,
                         plim_dtype_rows[v->meta.dtype].name,
                         plim_meta_str(&v->meta, dims, sizeof dims));
                return -1;
            }
        }
    return found;
}

static plim_status open_file(plim_graph *g, plim_arena *a, plim_bytes b, plim_err *err)
{
    plim_status st = plim_graph_init(g, a, err);
    return st ? st
              : plim_importer_onnx.read(g, &(plim_source){.bytes = b}, &(plim_binding){0},
                                        err);
}

static void check_file(counts *c, const char *path)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT, blind_err = PLIM_ERR_INIT;
    plim_bytes b = {0};
    plim_graph g, blind;
    onnx_model m;
    char text[300] = "";
    c->files++;
    if (plim_file_read(&b, path, &err) || open_file(&g, &a, b, &err)) {
        c->refused++;
        printf("refused  %s: %s\n", path, err.msg);
        plim_file_close(&b);
        plim_arena_free(&a);
        return;
    }
    uint8_t *copy = malloc((size_t)b.n + 1);
    memcpy(copy, b.p, (size_t)b.n);
    hide_results(copy, b.n);
    (void)plim_onnx_parse(&m, &a, b, NULL);
    int found = compare(&m.graph, &g, text, sizeof text);
    if (found >= 0 && !open_file(&blind, &a, (plim_bytes){.p = copy, .n = b.n}, &blind_err))
        found = compare(&m.graph, &blind, text, sizeof text);
    else if (found >= 0)
        found = 0;
    bool whole = found == (int)m.graph.n_outputs;
    c->wrong += found < 0;
    c->equal += whole;
    c->partly += found >= 0 && !whole;
    if (found < 0)
        printf("wrong    %s: %s\n", path, text);
    else if (c->list)
        printf("%s  %s%s%s\n", whole ? "equal  " : "by file", path, whole ? "" : ": ",
               whole ? "" : blind_err.msg);
    free(copy);
    plim_file_close(&b);
    plim_arena_free(&a);
}

/* ---- all of them ------------------------------------------------------------------------- */

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void check_folder(counts *c, const char *path)
{
    struct dirent **entry;
    int n = scandir(path, &entry, NULL, by_name);
    for (int i = 0; i < n; i++) {
        char name[4096];
        size_t k = strlen(entry[i]->d_name);
        snprintf(name, sizeof name, "%s/%s", path, entry[i]->d_name);
        if (entry[i]->d_name[0] != '.') {
            if (k > 5 && !strcmp(entry[i]->d_name + k - 5, ".onnx"))
                check_file(c, name);
            else
                check_folder(c, name);
        }
        free(entry[i]);
    }
    if (n >= 0)
        free(entry);
}

int main(int argc, char **argv)
{
    enum { SKIPPED = 77 };
    counts c = {0};
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--list"))
            c.list = true;
        else
            check_folder(&c, argv[i]);
    printf("%u files: %u with the file's sizes from our rules alone, %u with the help of the "
           "file, %u refused, %u wrong\n",
           c.files, c.equal, c.partly, c.refused, c.wrong);
    return !c.files ? SKIPPED : c.wrong ? 1 : 0;
}
