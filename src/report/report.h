/* report.h -- builds reports as rows, and renders the rows.  Private to the room.
 *
 * A report is a list of rows (structs in an array) and a const table of
 * columns.  A column turns a row into a cell, which can be rendered as text,
 * JSON and CSV.  The three renderings are loops over the same list, so they
 * cannot differ in content.
 *
 * A report is written to a page, which is passed to the caller in one piece at
 * the end: a report that fails prints nothing. */
#ifndef PLIM_REPORT_H
#define PLIM_REPORT_H

#include "base/fmt.h"
#include "base/json.h"
#include "plimsoll_vgpu.h"
#include "settings/settings.h"

/* ---- the page ------------------------------------------------------------ */

typedef struct plim_page {
    plim_arena arena;
    plim_budget budget;
    plim_buf buf;
    plim_style style; /* defaults filled in */
    uint32_t width;   /* columns; text never passes it */
    int rows;         /* style.top as given, for tables that are whole without it; 0: all */
    bool unknowns;    /* a cell is "-", which a note must explain */
    uint64_t scale;   /* the largest figure: others have its unit; 0: each has its own */
    plim_str note; /* what is left out of the answer: a last column of CSV; empty: nothing */
    struct plim_block *first, *last; /* of the report: blocks.h */
    bool apart;                      /* the next has an empty line before it */
    bool has_quiet;                  /* some are shown with style.quiet, the others are not */
} plim_page;

enum { PLIM_PAGE_LEAST = 40, PLIM_PAGE_MOST = 1000 }; /* bounds of the width */

void plim_page_open(plim_page *p, const plim_style *st); /* NULL: the default style */
/* Passes the text to `put` if `st` is PLIM_OK and memory was sufficient; closes the
 * page in any case. */
plim_status plim_page_send(plim_page *p, plim_status st, plim_put put, void *ud,
                           plim_err *err);

typedef enum plim_paint {
    PLIM_PAINT_PLAIN,
    PLIM_PAINT_BOLD,
    PLIM_PAINT_DIM,
    PLIM_PAINT_GOOD,
    PLIM_PAINT_WARN,
    PLIM_PAINT_BAD,
    PLIM_PAINT_CATEGORY,                                     /* + plim_category */
    PLIM_PAINT_PHASE = PLIM_PAINT_CATEGORY + PLIM_CAT_COUNT, /* + plim_phase */
    PLIM_PAINT_COUNT = PLIM_PAINT_PHASE + PLIM_PHASE_COUNT
} plim_paint;
/* Paints the text that follows, until PLIM_PAINT_PLAIN.  No effect without colour. */
void plim_page_paint(plim_page *p, uint32_t paint);

static inline void plim_page_puts(plim_page *p, const char *z) { plim_buf_puts(&p->buf, z); }
/* A character, or its replacement with style.ascii. */
static inline const char *plim_page_glyph(const plim_page *p, const char *utf8,
                                          const char *ascii)
{
    return p->style.ascii ? ascii : utf8;
}

/* A copy that is safe on a terminal: control and format characters and invalid
 * UTF-8 become '?', line ends and tabs become spaces.  NULL is "". */
plim_str plim_page_clean(plim_page *p, const char *z);
/* The text that the arguments make; "" where memory ends. */
const char *plim_page_format(plim_page *p, const char *fmt, ...) PLIM_PRINTF(2, 3);
/* Shortens text to `columns`, with an ellipsis at the end or (`head`, for paths) at
 * the beginning. */
plim_str plim_page_cut(plim_page *p, plim_str clean, uint32_t columns, bool head);
/* The longest prefix that fits in `columns`. */
plim_str plim_page_fit(plim_str clean, uint32_t columns);
/* Prints text cut or padded to `columns`. */
void plim_page_field(plim_page *p, plim_str clean, uint32_t columns, bool right);

/* Bytes, in the unit of the page's largest figure unless less than a tenth of it. */
plim_text plim_page_bytes(const plim_page *p, uint64_t bytes);
/* "3.85-4.02 GiB", the lower figure first; a single one if both round to the same.
 * (Larger workspaces may reserve less, where blocks then fit better into segments.) */
plim_str plim_page_range(plim_page *p, uint64_t one, uint64_t other);

/* ---- cells --------------------------------------------------------------- */

typedef enum plim_cell_kind {
    PLIM_CELL_UNKNOWN, /* text "-", JSON null, CSV empty */
    PLIM_CELL_TEXT,
    PLIM_CELL_BYTES,
    PLIM_CELL_COUNT,  /* 25,557,032 */
    PLIM_CELL_METRIC, /* 25.56 M */
    PLIM_CELL_INT,    /* signed */
    PLIM_CELL_DELTA,  /* bytes with a sign, in text also before those that are added */
    PLIM_CELL_RANGE,  /* n to high: text only */
    PLIM_CELL_BOOL,
    PLIM_CELL_REAL,   /* one decimal */
    PLIM_CELL_DIGITS, /* three significant digits */
    PLIM_CELL_MS,     /* about so many milliseconds: 41.2 is "≈ 41 ms" */
    PLIM_CELL_TENTHS, /* 89 is 8.9 */
    PLIM_CELL_SHAPE
} plim_cell_kind;

typedef struct plim_cell {
    plim_cell_kind kind;
    const char *text;
    const char *mark; /* printed before the text, "~" or ">="; NULL: none */
    uint64_t n, high;
    bool negative;
    double real;
    const int64_t *dim;
    int rank;    /* negative: no shape */
    int measure; /* of a PLIM_CELL_INT: the plim_kind as which text shows it; 0: a count */
} plim_cell;

plim_cell plim_cell_text(const char *z);
plim_cell plim_cell_u64(plim_cell_kind kind, uint64_t n);
plim_cell plim_cell_bytes_if(bool known, uint64_t n);
plim_cell plim_cell_int(int64_t v);
plim_cell plim_cell_delta(uint64_t a, uint64_t b); /* a - b */
plim_cell plim_cell_range(uint64_t low, uint64_t high);
plim_cell plim_cell_bool(bool v);
plim_cell plim_cell_rate(double v);   /* 0 or less: unknown */
plim_cell plim_cell_digits(double v); /* likewise */
plim_cell plim_cell_shape(int rank, const int64_t *dim);
plim_str plim_page_time(plim_page *p, int64_t ms); /* local, of milliseconds since 1970 */
/* The cell as text; tight: long counts are rounded. */
plim_str plim_cell_show(plim_page *p, const plim_cell *c, bool tight);
void plim_cell_json(plim_jw *w, const plim_cell *c);
void plim_cell_csv(plim_page *p, const plim_cell *c);

/* ---- figures ------------------------------------------------------------- */

/* What a figure is: a row of kinds.def, or made of other figures. */
typedef enum plim_kind {
    PLIM_KIND_NONE, /* `get` gives the cell */
#define KIND(name, c, python, unit) PLIM_KIND_##name,
#include "answers/kinds.def"
#undef KIND
    PLIM_KIND_SHAPE,  /* `at`: the rank; `also_at`: the sizes */
    PLIM_KIND_RANGE,  /* in text: of the bytes at `at` to those at `also_at` */
    PLIM_KIND_DELTA,  /* the bytes at `also_at` less those at `at` */
    PLIM_KIND_CARD,   /* in text: the short name of a card */
    PLIM_KIND_TEXTS,  /* an array of strings; `also_at`: how many */
    PLIM_KIND_PAIRS,  /* likewise of pointers to keys and values */
    PLIM_KIND_ROWS,   /* likewise of structs, or of pointers to them */
    PLIM_KIND_SERIES, /* `index` numbers of bytes in the struct, as READ_BYTES */
    PLIM_KIND_PART,   /* a struct in the struct, or figures of the struct itself */
    PLIM_KIND_REF,    /* a pointer to a struct; NULL: null */
    PLIM_KIND_SETTINGS
} plim_kind;

/* What was read from a machine, or could not be: of the kinds READ_TEXT to TIME.  measures.c */
plim_cell plim_cell_read(plim_kind kind, const void *field);
plim_cell plim_cell_measure(plim_kind kind, double v); /* of GROWTH and DURATION */
plim_str plim_cell_show_measure(plim_page *p, const plim_cell *c);

/* Defines a column's getter, which turns the row `r` into a cell. */
#define PLIM_GETTER(fn, T, cell)                                                              \
    static plim_cell fn(const void *row)                                                      \
    {                                                                                         \
        const T *r = row;                                                                     \
        return cell;                                                                          \
    }

/* ---- columns and rows ---------------------------------------------------- */

typedef enum plim_align {
    PLIM_BY_KIND, /* text to the left, numbers to the right */
    PLIM_LEFT,
    PLIM_RIGHT,
    PLIM_CUT_TAIL, /* left; may be narrowed to `least` columns, highest `drop` first */
    PLIM_CUT_HEAD  /* likewise, but cut at the beginning, for paths */
} plim_align;

enum { PLIM_IN_TEXT = 1, PLIM_IN_DATA = 2, PLIM_IN_BOTH = 3 }; /* data: JSON and CSV */
enum { PLIM_ON_REQUEST = 100 }; /* `drop` of a column that --columns must name */

/* A figure of a struct: a row of src/answers, which figures.h makes into this.
 * Positions in the struct are those of PLIM_AT; 0: none. */
typedef struct plim_column {
    const char *name;  /* in JSON, CSV and --columns */
    const char *title; /* heading in text; NULL: not in text */
    uint8_t in;        /* 0: in data, and in text if it has a title */
    uint8_t align;
    uint8_t least;
    uint8_t drop; /* the highest is dropped first if the table is too wide; 0: never */
    plim_cell (*get)(const void *row); /* makes the cell; NULL: it is the field at `at` */
    plim_kind kind;
    uint16_t at, also_at;
    uint16_t known; /* a bool: false: it is unknown */
    uint16_t
        index; /* 1 + that of the item, where the field points at an array; 0: it does not */
    uint16_t any;      /* a number of bytes: 0: this is null */
    uint16_t with;     /* a text: NULL: this is null */
    uint16_t unless;   /* a text: unless NULL, it says why this is unknown */
    uint16_t exact;    /* a bool: false: "~" stands before it in text */
    uint16_t only;     /* of its kind: if empty, the object has no such member */
    uint16_t when;     /* a bool: false: likewise */
    uint16_t size;     /* of an item of the array at `at`; 0: it is one of pointers */
    const char *empty; /* 0, NULL or "" is unknown, and says this; NULL: it is a value */
    const struct plim_column *of;     /* the figures of what it is made of */
    const char *unit, *doc, *nothing; /* nothing: why it is null */
    const char *command;              /* of which the settings are */
} plim_column;
#define PLIM_COLUMN(name_, title_, in_, align_, least_, drop_, get_)                          \
    {                                                                                         \
        .name = (name_), .title = (title_), .in = (in_), .align = (align_),                   \
        .least = (least_), .drop = (drop_), .get = (get_)                                     \
    }
#define PLIM_AT(type, field) (1 + offsetof(plim_##type, field))
enum { PLIM_COLUMNS_MAX = 40 };

static inline uint8_t plim_column_in(const plim_column *c)
{
    return c->in ? c->in : (uint8_t)(c->title ? PLIM_IN_BOTH : PLIM_IN_DATA);
}
/* What `known`, `any`, `with` and `unless` say. */
bool plim_column_known(const plim_column *c, const void *row);
plim_cell plim_column_cell(const plim_column *c, const void *row);
/* Is the member there?  Else the object has none of this name. */
bool plim_column_there(const plim_column *c, const void *of);

typedef struct plim_rows {
    const plim_column *columns;
    size_t n_columns;
    const void *items;
    size_t size; /* of an item; 0: items is an array of pointers to them */
    uint64_t n;
    const char *only;   /* "type,shape": the columns in text and CSV; NULL: the default */
    const char *hidden; /* likewise: those that the default leaves out in text; NULL: none */
} plim_rows;

/* The rows of a result's list of pointers. */
#define PLIM_ROWS_OF(cols, list, count)                                                       \
    (plim_rows)                                                                               \
    {                                                                                         \
        .columns = (cols), .n_columns = PLIM_COUNT(cols), .items = (list), .n = (count)       \
    }

/* Puts the rows in the order of a column: numbers from the greatest down, text from A to Z;
 * what is unknown comes last;
 * rows that are equal keep their order.  PLIM_EUSAGE: no such column, or one of shapes. */
plim_status plim_rows_sort(plim_page *p, plim_rows *r, const char *column, plim_err *err);

/* An order that a report offers by a word of its own. */
typedef struct plim_order {
    const char *word, *column;
    bool least_first;
    const char *only; /* the columns that text shows then; NULL: the default ones */
} plim_order;
/* Puts the rows in the order of a word; the unknown comes last.  NULL: they keep their order.
 * PLIM_EUSAGE: none of the orders has this word. */
plim_status plim_rows_order(plim_page *p, plim_rows *r, const plim_order *orders, size_t n,
                            const char *word, plim_err *err);

/* What a card cost at its launch, and for each sample a second that it takes: shown if rows
 * are sorted by it. */
#define PLIM_PRICE_PER "usd_per_sample_per_s"
#define PLIM_PRICE_SHOWN "price_usd," PLIM_PRICE_PER
plim_cell plim_report_price_per(int usd, double samples_per_s);

/* The columns that a rendering shows: those that `only` names, else the default ones. */
typedef struct plim_pick {
    const plim_column *column[PLIM_COLUMNS_MAX];
    size_t n;
} plim_pick;
/* PLIM_EUSAGE: `only` names an unknown column. */
plim_status plim_rows_pick(const plim_rows *r, uint8_t in, plim_pick *pick, plim_err *err);
plim_align plim_column_align(const plim_column *c);

/* PLIM_EUSAGE: `only` names an unknown column. */
plim_status plim_rows_text(plim_page *p, const plim_rows *r, uint32_t indent, plim_err *err);
plim_status plim_rows_csv(plim_page *p, const plim_rows *r, plim_err *err);
const void *plim_rows_at(const plim_rows *r, uint64_t i);
void plim_rows_json(plim_jw *w, const char *key, const plim_rows *r); /* an array of objects */
/* The members of an object, between its braces.  `own`: rows that take the place of those in
 * the struct with the same figures, sorted or picked; it ends with one without columns, and
 * NULL is none. */
void plim_figures_json(plim_jw *w, const plim_column *figures, const void *of,
                       const plim_rows *own);

/* Of structs that several reports have: shared.def. */
extern const plim_column plim_model_info_figures[];
extern const plim_column plim_step_time_figures[];
extern const plim_column plim_phase_row_figures[];
plim_rows plim_phase_rows(const plim_phase_row *rows, uint32_t n);

/* ---- shared by several reports ------------------------------------------- */

/* Adds the blocks of a report, or draws a picture of it. */
typedef plim_status (*plim_report_fn)(plim_page *p, const void *subject, plim_err *err);
typedef struct plim_report {
    const char *name;
    plim_report_fn build;
    /* The i-th model that the report is about, NULL past the last; none: it is about no model.
     * What a model's note says is left out or changed follows the text, whatever that is. */
    const plim_model_info *(*model)(const void *subject, uint32_t i);
} plim_report;
/* Defines the function for a T that is about one model, its member. */
#define PLIM_ONE_MODEL(fn, T)                                                                 \
    static const plim_model_info *fn(const void *subject, uint32_t i)                         \
    {                                                                                         \
        return i ? NULL : ((const T *)subject)->model;                                        \
    }
plim_status plim_report_print(const plim_report *report, const void *subject, plim_render how,
                              const plim_style *st, plim_put put, void *ud, plim_err *err);

void plim_report_model_line(plim_page *p, const plim_model_info *m); /* name, parameters */
bool plim_report_whole(const plim_model_info *m); /* all of the model is counted */
const char *plim_report_gain(plim_inplace_gain gain);
const char *plim_report_fits(plim_fits fits); /* "yes"; NULL: no card was chosen */
/* The words of a run. */
const char *plim_run_fits(plim_vgpu_fits fits); /* "yes"; NULL: not known */
const char *plim_run_end(plim_vgpu_end end);
const char *plim_run_by(plim_vgpu_by by);
/* "fits without the margin of 5%: T4, L4"; nothing without names. */
void plim_report_tight(plim_page *p, const plim_buf *names, const plim_settings *s);
/* "fits on NVIDIA T4 (~14.56 GiB) with 2.10 GiB of headroom"; nothing without a card. */
typedef struct plim_report_card_fit {
    plim_fits fits;
    const char *gpu;              /* NULL: only its size was given */
    uint64_t gpu_bytes, headroom; /* headroom 0: none is said */
    uint64_t short_of; /* the margin that it is less than; 0: it is not, or there is none */
    bool gpu_exact, context_known;
} plim_report_card_fit;
void plim_report_verdict(plim_page *p, const plim_report_card_fit *c);
/* The settings that are the same in all of the estimates. */
void plim_report_settings_line(plim_page *p, const plim_estimate *const *list, uint32_t n);
/* The line of an estimate about the time of a step. */
void plim_report_step_time(plim_page *p, const plim_step_time *t, uint32_t indent);
const char *plim_report_card(const char *gpu); /* "RTX 4090": without NVIDIA and GeForce */
/* part / whole in units of 1 / steps, rounded; at least 1 if part is not 0. */
uint32_t plim_report_share(uint64_t part, uint64_t whole, uint32_t steps);

/* Bars and the timeline: chart.c */
void plim_chart_bar(plim_page *p, uint64_t part, uint64_t whole, uint32_t columns);
void plim_chart_timeline(plim_page *p, const plim_estimate *e);
/* The longest name of the phase that is shorter than `columns`; "": there is none. */
const char *plim_chart_phase_name(plim_phase phase, uint32_t columns);

/* The timeline as a picture: timeline.c */
plim_status plim_timeline_svg(plim_page *p, const void *estimate, plim_err *err);

#endif
