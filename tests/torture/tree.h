/* tree.h -- a file taken apart for torture_mutate: what is written for a node, and how.
 *
 * A node is a head, then its content, which is text or children, then a tail.  What says how long
 * the content is, or how many children it has, follows from the content when it is written, so
 * that a file with a piece more or less is still whole around it. */
#ifndef TORTURE_TREE_H
#define TORTURE_TREE_H

#include "mutate.h"

/* Memory of one mutant, freed at once. */
typedef struct tree_arena {
    struct tree_chunk *head;
} tree_arena;
void *tree_new(tree_arena *a, size_t n); /* zeroed; never NULL: without memory it aborts */
void tree_free(tree_arena *a);

typedef struct tree_span {
    const uint8_t *p;
    size_t n;
} tree_span;
tree_span tree_text(const char *z);
tree_span tree_copy(tree_arena *a, const void *p, size_t n);

typedef struct tree_buf {
    uint8_t *p;
    size_t n, cap;
} tree_buf;
void tree_add(tree_buf *b, const void *p, size_t n);

typedef enum tree_what {
    TREE_LIST,   /* children that can be taken out, repeated and exchanged */
    TREE_NUMBER, /* text, in the form below */
    TREE_STRING,
    TREE_OTHER
} tree_what;

/* How a number is written, or the length or count before the content. */
typedef enum tree_form {
    TREE_NONE,
    TREE_DECIMAL, /* of numbers only */
    TREE_VARINT,
    TREE_U8,
    TREE_U16,
    TREE_U32,
    TREE_U64,
    TREE_U32_BE,
    TREE_U64_BE,
    TREE_CHUNK, /* no length: filled up with zeros to a multiple of 64 KiB */
    TREE_ALIGN  /* the same up to where the file has a multiple of 32 bytes */
} tree_form;

typedef struct tree_node {
    tree_what what;
    tree_form number;
    tree_form length;      /* of the content in bytes, written after the head */
    torture_format format; /* whose syntax it is */
    tree_span head, text, separator, tail;
    struct tree_node **child;
    uint32_t n, cap;
    const struct tree_node *counts; /* a number that is how many children that has */
    const struct tree_node *sizes;  /* or how many bytes that is */
} tree_node;

tree_node *tree_leaf(tree_arena *a, torture_format f, tree_what what, tree_span text);
tree_node *tree_list(tree_arena *a, torture_format f);
void tree_append(tree_arena *a, tree_node *list, tree_node *child);
/* A number in this form. */
tree_span tree_number(tree_arena *a, tree_form form, uint64_t value);
tree_node *tree_number_leaf(tree_arena *a, torture_format f, tree_form form, uint64_t value);

void tree_write(const tree_node *node, tree_buf *out);

/* Takes a file of this format apart; what it does not understand is one leaf, TREE_OTHER. */
tree_node *tree_parse(tree_arena *a, torture_format f, tree_span file);
/* Something small of this format, in the place of any other node. */
tree_node *tree_invent(tree_arena *a, torture_format f, torture_random *r);
/* The node within `depth` levels of what the format nests. */
tree_node *tree_nest(tree_arena *a, tree_node *node, uint32_t depth, torture_random *r);

#endif
