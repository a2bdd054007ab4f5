/* figures.h -- what the rows of src/answers are in C: tables of plim_column, one for
 * each object, which end with an empty row.
 *
 * A row is a figure of the answers.  From it come the field of the struct and its comment
 * in plimsoll.h, the member of the JSON, the cell of the CSV and of the table in text, the
 * attribute of the Python class and its docstring, and the row of docs/json.md:
 * tools/figures.py writes those that are files.  Only the value is code elsewhere;
 * docs/adding/figure.md is an example.
 *
 *     OBJECT(name, Class, .doc = ...)          begins the figures of an object; without a
 *                                              class Python has none; its fields are a group of
 *                                              plim_STRUCT, under a line that says the doc
 *     REPORT(name, Class, schema, .doc = ...)  of a whole answer: its class is CLASSReport
 *     TABLE(name, .doc = ...)           of the rows of a table, which are no object
 *     FIGURE(struct, field, KIND, ...)         a field of plim_STRUCT; kinds.def has the kinds
 *     END
 *
 * .doc     one line: what it is
 * .unit    of a number that is not bytes and whose kind does not say it
 * .empty   0, NULL and "" are unknown (null, None), for this reason
 * .known   a flag: where it is not set, this is unknown
 * .unless  a text that says why this is unknown, if it is
 * .any     a number: where it is 0, this is null, as .nothing says; .with: the same of a text
 * .when    a flag: where it is not set, the object has no such member
 * .only    a field of this kind, most often this one: where it is 0, NULL or "", likewise.  One
 *          word cannot say both: what is empty depends on the kind, and an offset has none
 * .title   its heading in text; without one it is not in text
 * .align, .least, .drop  its column in text
 * .exact   a flag: where it is not set, "~" stands before it in text
 *
 * Fields that are in the struct only: FIELD, INNER (a struct), INNER_REF (a pointer to one),
 * INNER_ROWS (an array of such pointers, and n_FIELD), INNER_LIST (a LIST).
 * What has no field of its own:
 *     DERIVED      .get makes the cell of the struct
 *     SHOWN        likewise, in text only; RANGE, DELTA and CARD are made of fields, and
 *                  COLUMN is one
 *     DIFFERENCE   the bytes of the second field less those of the first
 *     NESTED       the key of a field of a struct in the struct
 *     INDEXED      the key of an item of the array that a field points at
 *     SHAPE_AGAIN  a SHAPE in another object of the struct
 *     GROUP        an object of fields of the same struct; GROUPED: its field is PREFIX_KEY
 * Fields of other kinds:
 *     SHAPE        `rank` and `dim`
 *     TEXTS, PAIRS, ROWS  strings, keys with values, structs, and how many: n_FIELD
 *     LIST, LIST_AS  structs in an array, while those of ROWS are behind pointers
 *     SERIES       so many numbers of bytes, as READ_BYTES
 *     PART         a struct
 *     REF, REF_AS  a pointer to one; NULL: null.  REF_AT: it is an item of an INNER_ROWS
 *     SETTINGS     those with which the answer was made, of a command */
#ifndef PLIM_FIGURES_H
#define PLIM_FIGURES_H

#include "report/report.h"

#ifndef PLIM_FIGURES_STORAGE /* shared.c has tables for other files */
#define PLIM_FIGURES_STORAGE static
#endif

#define OBJECT(object, class, ...)                                                            \
    PLIM_FIGURES_STORAGE const plim_column plim_##object##_figures[] = {
#define REPORT(object, class, schema, ...) OBJECT(object, class, )
#define TABLE(object, ...) OBJECT(object, , )
#define END                                                                                   \
    {                                                                                         \
        0                                                                                     \
    }                                                                                         \
    }                                                                                         \
    ;
#define FIGURE(s, field, what, ...) NESTED(s, field, field, what, __VA_ARGS__)
#define FIELD(s, field, what, ...)
#define INNER(s, field, object, ...)
#define INNER_REF(s, field, object, ...)
#define INNER_ROWS(s, field, object, ...)
#define INNER_LIST(s, field, object, ...)
#define NESTED(s, key, path, what, ...)                                                       \
    {.name = #key, .kind = PLIM_KIND_##what, .at = PLIM_AT(s, path), __VA_ARGS__},
#define GROUPED(s, prefix, key, what, ...) NESTED(s, key, prefix##_##key, what, __VA_ARGS__)
#define INDEXED(s, key, array, i, what, ...)                                                  \
    NESTED(s, key, array, what, .index = (i) + 1, __VA_ARGS__)
#define DERIVED(s, key, what, ...) {.name = #key, .kind = PLIM_KIND_##what, __VA_ARGS__},
#define SHOWN(s, key, ...) {.name = #key, .in = PLIM_IN_TEXT, __VA_ARGS__},
#define COLUMN(s, key, path, what, ...)                                                       \
    SHOWN(s, key, .kind = PLIM_KIND_##what, .at = PLIM_AT(s, path), __VA_ARGS__)
#define RANGE(s, key, low, high, ...)                                                         \
    {.name = #key,                                                                            \
     .in = PLIM_IN_TEXT,                                                                      \
     .kind = PLIM_KIND_RANGE,                                                                 \
     .at = PLIM_AT(s, low),                                                                   \
     .also_at = PLIM_AT(s, high),                                                             \
     __VA_ARGS__},
#define DELTA(s, key, from, to, ...)                                                          \
    {.name = #key,                                                                            \
     .in = PLIM_IN_TEXT,                                                                      \
     .kind = PLIM_KIND_DELTA,                                                                 \
     .at = PLIM_AT(s, from),                                                                  \
     .also_at = PLIM_AT(s, to),                                                               \
     __VA_ARGS__},
#define DIFFERENCE(s, key, from, to, ...)                                                     \
    {.name = #key,                                                                            \
     .kind = PLIM_KIND_DELTA,                                                                 \
     .at = PLIM_AT(s, from),                                                                  \
     .also_at = PLIM_AT(s, to),                                                               \
     __VA_ARGS__},
#define CARD(s, field, ...)                                                                   \
    {.name = #field,                                                                          \
     .in = PLIM_IN_TEXT,                                                                      \
     .kind = PLIM_KIND_CARD,                                                                  \
     .at = PLIM_AT(s, field),                                                                 \
     __VA_ARGS__},
#define SHAPE(s, ...)                                                                         \
    {.name = "shape",                                                                         \
     .kind = PLIM_KIND_SHAPE,                                                                 \
     .at = PLIM_AT(s, rank),                                                                  \
     .also_at = PLIM_AT(s, dim),                                                              \
     __VA_ARGS__},
#define SHAPE_AGAIN(s, ...) SHAPE(s, __VA_ARGS__)
#define LIST_OF(s, field, what, ...)                                                          \
    {.name = #field,                                                                          \
     .kind = PLIM_KIND_##what,                                                                \
     .at = PLIM_AT(s, field),                                                                 \
     .also_at = PLIM_AT(s, n_##field),                                                        \
     __VA_ARGS__},
#define TEXTS(s, field, ...) LIST_OF(s, field, TEXTS, __VA_ARGS__)
#define PAIRS(s, field, ...) LIST_OF(s, field, PAIRS, __VA_ARGS__)
#define ROWS(s, field, object, ...)                                                           \
    LIST_OF(s, field, ROWS, .of = plim_##object##_figures, __VA_ARGS__)
#define SERIES(s, field, count, ...)                                                          \
    {.name = #field,                                                                          \
     .kind = PLIM_KIND_SERIES,                                                                \
     .at = PLIM_AT(s, field),                                                                 \
     .index = (count),                                                                        \
     __VA_ARGS__},
#define LIST(s, field, object, ...) LIST_AS(s, field, field, object, __VA_ARGS__)
#define LIST_AS(s, key, field, object, ...)                                                   \
    {.name = #key,                                                                            \
     .kind = PLIM_KIND_ROWS,                                                                  \
     .at = PLIM_AT(s, field),                                                                 \
     .also_at = PLIM_AT(s, n_##field),                                                        \
     .of = plim_##object##_figures,                                                           \
     .size = sizeof *((const plim_##s *)0)->field,                                            \
     __VA_ARGS__},
#define PART(s, field, object, ...)                                                           \
    {.name = #field,                                                                          \
     .kind = PLIM_KIND_PART,                                                                  \
     .at = PLIM_AT(s, field),                                                                 \
     .of = plim_##object##_figures,                                                           \
     __VA_ARGS__},
#define REF(s, field, object, ...) REF_AS(s, field, field, object, __VA_ARGS__)
#define REF_AS(s, key, field, object, ...)                                                    \
    {.name = #key,                                                                            \
     .kind = PLIM_KIND_REF,                                                                   \
     .at = PLIM_AT(s, field),                                                                 \
     .of = plim_##object##_figures,                                                           \
     __VA_ARGS__},
#define REF_AT(s, key, array, i, object, ...)                                                 \
    REF_AS(s, key, array, object, .index = (i) + 1, __VA_ARGS__)
#define GROUP(s, key, object, ...)                                                            \
    {.name = #key,                                                                            \
     .kind = PLIM_KIND_PART,                                                                  \
     .at = 1,                                                                                 \
     .of = plim_##object##_figures,                                                           \
     __VA_ARGS__},
#define SETTINGS(s, of_command, ...)                                                          \
    {.name = "settings",                                                                      \
     .kind = PLIM_KIND_SETTINGS,                                                              \
     .at = PLIM_AT(s, settings),                                                              \
     .command = of_command,                                                                   \
     __VA_ARGS__},

/* The rows of a list of pointers to structs with these figures. */
#define PLIM_FIGURE_ROWS(object, list, count)                                                 \
    (plim_rows)                                                                               \
    {                                                                                         \
        .columns = plim_##object##_figures,                                                   \
        .n_columns = PLIM_COUNT(plim_##object##_figures) - 1, .items = (list), .n = (count)   \
    }
/* Those of an array of such structs. */
#define PLIM_FIGURE_LIST(object, list, count)                                                 \
    (plim_rows)                                                                               \
    {                                                                                         \
        .columns = plim_##object##_figures,                                                   \
        .n_columns = PLIM_COUNT(plim_##object##_figures) - 1, .items = (list),                \
        .size = sizeof *(list), .n = (count)                                                  \
    }

#endif
