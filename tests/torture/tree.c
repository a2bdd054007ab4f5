/* tree.c -- nodes, their memory, and how they are written: see tree.h. */
#include "tree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory --------------------------------------------------------------------- */

struct tree_chunk {
    struct tree_chunk *next;
    size_t used, size;
};
enum { LEAST_CHUNK = 1 << 16 };

static void *get_memory(size_t n)
{
    void *p = calloc(1, n);
    if (!p)
        abort();
    return p;
}

void *tree_new(tree_arena *a, size_t n)
{
    const size_t head = (sizeof(struct tree_chunk) + 15) / 16 * 16;
    n = (n + 15) / 16 * 16;
    if (!a->head || a->head->size - a->head->used < n) {
        size_t size = n > LEAST_CHUNK ? n : LEAST_CHUNK;
        struct tree_chunk *c = get_memory(head + size);
        c->size = size;
        c->next = a->head;
        a->head = c;
    }
    void *p = (uint8_t *)a->head + head + a->head->used;
    a->head->used += n;
    return p;
}

void tree_free(tree_arena *a)
{
    while (a->head) {
        struct tree_chunk *next = a->head->next;
        free(a->head);
        a->head = next;
    }
}

tree_span tree_text(const char *z) { return (tree_span){(const uint8_t *)z, strlen(z)}; }

tree_span tree_copy(tree_arena *a, const void *p, size_t n)
{
    uint8_t *q = tree_new(a, n + 1);
    if (n)
        memcpy(q, p, n);
    return (tree_span){q, n};
}

static void grow_buf(tree_buf *b, size_t more)
{
    if (b->cap - b->n >= more)
        return;
    b->cap = (b->n + more) * 2;
    b->p = realloc(b->p, b->cap);
    if (!b->p)
        abort();
}

void tree_add(tree_buf *b, const void *p, size_t n)
{
    grow_buf(b, n);
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
}

/* ---- nodes ----------------------------------------------------------------------- */

tree_node *tree_leaf(tree_arena *a, torture_format f, tree_what what, tree_span text)
{
    tree_node *n = tree_new(a, sizeof *n);
    n->format = f;
    n->what = what;
    n->text = text;
    return n;
}

tree_node *tree_list(tree_arena *a, torture_format f)
{
    return tree_leaf(a, f, TREE_LIST, (tree_span){NULL, 0});
}

void tree_append(tree_arena *a, tree_node *list, tree_node *child)
{
    if (list->n == list->cap) {
        uint32_t cap = list->cap ? list->cap * 2 : 4;
        tree_node **more = tree_new(a, cap * sizeof *more);
        if (list->n)
            memcpy(more, list->child, list->n * sizeof *more);
        list->child = more;
        list->cap = cap;
    }
    list->child[list->n++] = child;
}

/* ---- numbers ---------------------------------------------------------------------- */

static size_t put_number(uint8_t out[24], tree_form form, uint64_t v)
{
    size_t n = 0;
    switch (form) {
    case TREE_DECIMAL: return (size_t)snprintf((char *)out, 24, "%" PRIu64, v);
    case TREE_VARINT: do { out[n++] = (uint8_t)(v & 0x7f) | (v > 0x7f ? 0x80 : 0);
        } while (v >>= 7);
        return n;
    case TREE_U8:
    case TREE_U16:
    case TREE_U32:
    case TREE_U64:
        n = form == TREE_U8 ? 1 : form == TREE_U16 ? 2 : form == TREE_U32 ? 4 : 8;
        for (size_t i = 0; i < n; i++)
            out[i] = (uint8_t)(v >> 8 * i);
        return n;
    case TREE_U32_BE:
    case TREE_U64_BE:
        n = form == TREE_U32_BE ? 4 : 8;
        for (size_t i = 0; i < n; i++)
            out[n - 1 - i] = (uint8_t)(v >> 8 * i);
        return n;
    case TREE_NONE:
    case TREE_CHUNK:
    case TREE_ALIGN: break;
    }
    return 0;
}

tree_span tree_number(tree_arena *a, tree_form form, uint64_t value)
{
    uint8_t text[24];
    return tree_copy(a, text, put_number(text, form, value));
}

tree_node *tree_number_leaf(tree_arena *a, torture_format f, tree_form form, uint64_t value)
{
    tree_node *n = tree_leaf(a, f, TREE_NUMBER, tree_number(a, form, value));
    n->number = form;
    return n;
}

/* ---- writing ----------------------------------------------------------------------- */

/* What a mutant may have at most: pieces that are repeated within one another would fill memory. */
enum { MOST = 8 << 20, CHUNK = 1 << 16, ALIGN = 32 };

/* 0 within a node that is measured: it may have come to lie in what it is the size of. */
static size_t measure_node(const tree_node *node)
{
    static bool measuring;
    tree_buf b = {NULL, 0, 0};
    if (measuring)
        return 0;
    measuring = true;
    tree_write(node, &b);
    measuring = false;
    free(b.p);
    return b.n;
}

static void write_content(const tree_node *node, tree_buf *out)
{
    tree_add(out, node->text.p, node->text.n);
    for (uint32_t i = 0; i < node->n && out->n < MOST; i++) {
        if (i)
            tree_add(out, node->separator.p, node->separator.n);
        tree_write(node->child[i], out);
    }
}

void tree_write(const tree_node *node, tree_buf *out)
{
    uint8_t number[24];
    if (out->n >= MOST)
        return;
    tree_add(out, node->head.p, node->head.n);
    size_t start = out->n;
    if (node->counts)
        tree_add(out, number, put_number(number, node->number, node->counts->n));
    else if (node->sizes)
        tree_add(out, number, put_number(number, node->number, measure_node(node->sizes)));
    else
        write_content(node, out);
    static const uint8_t zeros[CHUNK];
    if (node->length == TREE_CHUNK) {
        tree_add(out, zeros, (CHUNK - (out->n - start) % CHUNK) % CHUNK);
    } else if (node->length == TREE_ALIGN) {
        tree_add(out, zeros, (ALIGN - out->n % ALIGN) % ALIGN);
    } else if (node->length) {
        size_t n = put_number(number, node->length, out->n - start);
        grow_buf(out, n);
        memmove(out->p + start + n, out->p + start, out->n - start);
        memcpy(out->p + start, number, n);
        out->n += n;
    }
    tree_add(out, node->tail.p, node->tail.n);
}
