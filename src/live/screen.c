/* screen.c -- the terminal view: a view of devices and processes becomes cells.
 *
 * From the top: a title; a bar for each device; a plot of the selected one; the table of
 * processes; a line of keys.  What does not fit is left out from the middle: plots first, then
 * devices, so that there is always a process to see. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "live/live.h"

enum {
    LEAST_COLUMNS = 40,
    LEAST_ROWS = 10,
    FILTER_MOST = 64,
    TEXT_MOST = 512,
    TABLE_LEAST = 4, /* rows of the table: its head and three processes */
    PLOT_LEAST = 4,
    PLOT_MOST = 10,
    WIDE = 120 /* columns from which two plots stand side by side */
};

typedef enum mode { WATCH, FILTER, CONFIRM, HELP } mode;

struct plim_screen {
    plim_arena keep, scratch;
    bool ascii;
    mode mode;
    char filter[FILTER_MOST];
    char said[TEXT_MOST];
    uint32_t sort; /* index in fields */
    bool reverse;
    /* the selected process: by what it is, as its place changes */
    uint64_t pid, started;
    uint32_t device;
    int selected, first; /* rows of the table: the selected one, the topmost one */
    int move;            /* what the keys ask for until the next draw */

    /* the last draw, for clicks */
    int head_row, table_rows, n_shown;
    int field_at[16], field_end[16];
    bool chosen, elsewhere; /* a process is selected; it is of another namespace */
    char name[64];
    /* whom the question is about, whatever is selected meanwhile */
    plim_screen_action asked;
    char asked_name[64];

    /* the canvas of this draw */
    plim_screen_cell *cells;
    int columns, rows;
};

/* ---- the canvas -------------------------------------------------------------------------------- */

static void put_cell(plim_screen *s, int x, int y, uint32_t code, uint32_t paint)
{
    if (x >= 0 && x < s->columns && y >= 0 && y < s->rows)
        s->cells[y * s->columns + x] = (plim_screen_cell){code, paint};
}

/* One character of UTF-8, and its bytes; what is invalid or would control a terminal is '?'. */
static uint32_t decode_char(const char *z, size_t *n)
{
    uint32_t code = plim_utf8_decode((plim_str){z, strnlen(z, 4)}, n);
    return plim_utf8_shows(code) ? code : '?';
}

/* Text from x on, in at most `width` columns; returns the columns it takes. */
static int put_text(plim_screen *s, int x, int y, int width, uint32_t paint, const char *z)
{
    int at = 0;
    for (size_t n; *z; z += n) {
        uint32_t code = decode_char(z, &n);
        int wide = code == '?' ? 1 : (int)plim_text_width((plim_str){z, n});
        if (!wide)
            continue; /* a mark on the character before it */
        if (at + wide > width || x + at + wide > s->columns)
            break;
        put_cell(s, x + at, y, code, paint);
        if (wide == 2)
            put_cell(s, x + at + 1, y, 0, paint);
        at += wide;
    }
    return at;
}

static int put_line(plim_screen *s, int x, int y, uint32_t paint, const char *fmt, ...)
    PLIM_PRINTF(5, 6);
static int put_line(plim_screen *s, int x, int y, uint32_t paint, const char *fmt, ...)
{
    char text[TEXT_MOST];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return put_text(s, x, y, s->columns - x, paint, text);
}

/* Text that ends before column `end`. */
static void put_right(plim_screen *s, int end, int y, uint32_t paint, const char *z)
{
    int width = (int)plim_text_width(plim_str_of(z));
    put_text(s, PLIM_MAX(end - width, 0), y, width, paint, z);
}

static void fill_row(plim_screen *s, int y, uint32_t paint)
{
    for (int x = 0; x < s->columns; x++)
        put_cell(s, x, y, ' ', paint);
}

/* ---- numbers ------------------------------------------------------------------------------------ */

static bool has_value(uint64_t v) { return v != PLIM_LIVE_UNKNOWN; }

static void say_bytes(char *out, size_t n, uint64_t v)
{
    snprintf(out, n, "%s", has_value(v) ? plim_fmt_bytes(v, false).s : "-");
}

static void say_time(char *out, size_t n, double s)
{
    enum { MINUTE = 60, HOUR = 3600, DAY = 86400 };
    if (!isfinite(s))
        snprintf(out, n, "-");
    else if (s >= 30.0 * DAY)
        snprintf(out, n, "> 30 d");
    else if (s >= 2.0 * DAY)
        snprintf(out, n, "%.0f d", s / DAY);
    else if (s >= 2.0 * HOUR)
        snprintf(out, n, "%.0f h", s / HOUR);
    else if (s >= 2.0 * MINUTE)
        snprintf(out, n, "%.0f min", s / MINUTE);
    else
        snprintf(out, n, "%.0f s", s);
}

/* ---- devices -------------------------------------------------------------------------------------- */

static uint32_t level_paint(double part)
{
    return part > 0.92 ? PLIM_SCREEN_FULL : part > 0.75 ? PLIM_SCREEN_HIGH : PLIM_SCREEN_LOW;
}

static void draw_bar(plim_screen *s, int x, int y, int width, uint64_t part, uint64_t whole)
{
    static const uint32_t eighths[] = {' ',    0x258f, 0x258e, 0x258d,
                                       0x258c, 0x258b, 0x258a, 0x2589};
    bool known = has_value(part) && has_value(whole) && whole;
    double share = known ? (double)part / (double)whole : 0;
    int filled = (int)(share * width * 8 + 0.5);
    uint32_t paint = level_paint(share);
    for (int i = 0; i < width; i++) {
        int rest = filled - i * 8;
        if (!known)
            put_cell(s, x + i, y, s->ascii ? '.' : 0xb7, PLIM_SCREEN_DIM);
        else if (rest >= 8)
            put_cell(s, x + i, y, s->ascii ? '#' : 0x2588, paint);
        else if (rest > 0)
            put_cell(s, x + i, y, s->ascii ? (rest >= 4 ? '#' : '-') : eighths[rest], paint);
        else
            put_cell(s, x + i, y, s->ascii ? '-' : 0x2500, PLIM_SCREEN_DIM);
    }
}

static void say_device_id(char *out, size_t n, const plim_live_device *d)
{
    snprintf(out, n, "%u%s%s", (unsigned)d->index, d->mig ? ":" : "", d->mig ? d->mig : "");
}

/* Two rows: name and sensors; bar and memory. */
static void draw_device(plim_screen *s, const plim_live_device *d, int y)
{
    char id[32], used[32], total[32], full[32], right[TEXT_MOST];
    size_t at = 0;
    say_device_id(id, sizeof id, d);
    say_bytes(used, sizeof used, d->used);
    say_bytes(total, sizeof total, d->total);
    say_time(full, sizeof full, d->full_in_s);
    right[0] = '\0';
#define ADD(...)                                                                              \
    do {                                                                                      \
        int added = snprintf(right + at, sizeof right - at, __VA_ARGS__);                     \
        at += added > 0 ? (size_t)added : 0;                                                  \
    } while (0)
    if (has_value(d->busy_percent))
        ADD("  %3" PRIu64 " %%", d->busy_percent);
    if (has_value(d->temperature_c))
        ADD("  %" PRIu64 " %s", d->temperature_c,
            s->ascii ? "C"
                     : "\xc2\xb0"
                       "C");
    if (has_value(d->power_mw) && has_value(d->power_limit_mw))
        ADD("  %" PRIu64 "/%" PRIu64 " W", d->power_mw / 1000, d->power_limit_mw / 1000);
    else if (has_value(d->power_mw))
        ADD("  %" PRIu64 " W", d->power_mw / 1000);
    if (has_value(d->clock_mhz) && s->columns >= WIDE)
        ADD("  %" PRIu64 " MHz", d->clock_mhz);
#undef ADD
    int left = put_line(s, 0, y, PLIM_SCREEN_BOLD, "%-3s ", id);
    int room = s->columns - (int)plim_text_width(plim_str_of(right)) - left;
    put_text(s, left, y, room, d->trouble ? PLIM_SCREEN_ALERT : PLIM_SCREEN_PLAIN,
             d->name      ? d->name
             : d->trouble ? d->trouble
                          : "-");
    put_right(s, s->columns, y, PLIM_SCREEN_PLAIN, right);
    snprintf(right, sizeof right, " %s of %s%s%s%s", used, total,
             d->unified ? ", unified" : "", isfinite(d->full_in_s) ? ", full in " : "",
             isfinite(d->full_in_s) ? full : "");
    int width = s->columns - left - (int)plim_text_width(plim_str_of(right));
    draw_bar(s, left, y + 1, PLIM_MAX(width, 0), d->used, d->total);
    put_right(s, s->columns, y + 1, PLIM_SCREEN_PLAIN, right);
}

/* ---- plots ---------------------------------------------------------------------------------------- */

/* Columns of eighths from the left, the newest at the right; values[0] is the newest. */
static void draw_plot(plim_screen *s, int x, int y, int width, int height, const char *title,
                      const uint64_t *values, uint32_t n, uint64_t whole, bool busy)
{
    put_text(s, x, y, width, PLIM_SCREEN_DIM, title);
    for (int i = 0; i < width && (uint32_t)i < n && has_value(whole) && whole; i++) {
        uint64_t v = values[i];
        if (!has_value(v))
            continue;
        double share = PLIM_MIN((double)v / (double)whole, 1);
        int filled = (int)(share * (height - 1) * 8 + 0.5);
        uint32_t paint = busy ? PLIM_SCREEN_BUSY : level_paint(share);
        for (int k = 0; k < height - 1; k++) {
            int rest = PLIM_MIN(filled - k * 8, 8);
            uint32_t code = s->ascii ? (rest >= 4 ? '#' : '.') : 0x2580u + (uint32_t)rest;
            if (rest > 0)
                put_cell(s, x + width - 1 - i, y + height - 1 - k, code, paint);
        }
    }
}

static plim_status draw_plots(plim_screen *s, const plim_live_monitor *l,
                              const plim_live_view *v, int y, int height, plim_err *err)
{
    uint32_t device = s->device < v->n_devices ? s->device : 0;
    const plim_live_device *d = &v->devices[device];
    uint64_t *used = PLIM_NEW_N(&s->scratch, uint64_t, PLIM_PAST_MOST);
    uint64_t *busy = PLIM_NEW_N(&s->scratch, uint64_t, PLIM_PAST_MOST);
    char id[32], title[TEXT_MOST], top[32];
    if (!used || !busy)
        return plim_oom(err);
    uint32_t n = plim_live_past(l, device, used, busy, PLIM_PAST_MOST);
    int gap = 2, width = s->columns >= WIDE ? (s->columns - gap) / 2 : s->columns;
    say_device_id(id, sizeof id, d);
    say_bytes(top, sizeof top, d->total);
    snprintf(title, sizeof title, "GPU %s, memory, 0 to %s", id, top);
    draw_plot(s, 0, y, width, height, title, used, n, d->total, false);
    if (s->columns >= WIDE) {
        snprintf(title, sizeof title, "GPU %s, busy, 0 to 100 %%", id);
        draw_plot(s, width + gap, y, s->columns - width - gap, height, title, busy, n, 100,
                  true);
    }
    return PLIM_OK;
}

/* ---- the table ------------------------------------------------------------------------------------ */

/* A column: what it says of a process, the number by which it sorts (greatest first), or
 * none: by its text; and whether there is anything to say, or none: always. */
typedef struct field {
    const char *title;
    int width, drop; /* the highest is left out first where there is no room; 0: never */
    bool right;
    void (*say)(char *out, size_t n, const plim_live_view *v, const plim_live_process *p);
    double (*order)(const plim_live_process *p);
    bool (*wanted)(const plim_live_view *v);
} field;

static double order_number(uint64_t v) { return has_value(v) ? (double)v : -1; }
static double order_real(double v) { return isfinite(v) ? v : -1e300; }

static const char *text_or_dash(const char *z) { return z && *z ? z : "-"; }

static void say_gpu(char *out, size_t n, const plim_live_view *v, const plim_live_process *p)
{
    say_device_id(out, n, &v->devices[p->device]);
}

#define SAY(fn, ...)                                                                          \
    static void fn(char *out, size_t n, const plim_live_view *v, const plim_live_process *p)  \
    {                                                                                         \
        (void)v;                                                                              \
        __VA_ARGS__;                                                                          \
    }
#define ORDER(fn, value)                                                                      \
    static double fn(const plim_live_process *p) { return value; }

/* clang-format off */
SAY(say_pid, snprintf(out, n, "%" PRIu64, p->pid))
SAY(say_user, snprintf(out, n, "%s", text_or_dash(p->user)))
SAY(say_memory, say_bytes(out, n, p->memory))
SAY(say_peak, say_bytes(out, n, p->peak))
SAY(say_predicted, say_bytes(out, n, p->predicted))
SAY(say_growth, if (!isfinite(p->growth_per_s)) snprintf(out, n, "-"); else snprintf(out, n, "%s%s/s", p->growth_per_s < 0 ? "-" : "+", plim_fmt_bytes((uint64_t)PLIM_MIN(fabs(p->growth_per_s), 1e18), false).s))
SAY(say_full, say_time(out, n, p->full_in_s))
SAY(say_busy, if (has_value(p->busy_percent)) snprintf(out, n, "%" PRIu64, p->busy_percent); else snprintf(out, n, "-"))
SAY(say_cpu, if (isfinite(p->cpu_percent)) snprintf(out, n, "%.0f", p->cpu_percent); else snprintf(out, n, "-"))
SAY(say_job, snprintf(out, n, "%s", text_or_dash(p->job)))
SAY(say_container, snprintf(out, n, "%s", text_or_dash(p->container)))
SAY(say_command, snprintf(out, n, "%s", p->elsewhere ? "(of another namespace)" : text_or_dash(p->command_line ? p->command_line : p->command)))
ORDER(order_gpu, -(double)p->device)
ORDER(order_pid, -(double)p->pid)
ORDER(order_memory, order_number(p->memory))
ORDER(order_peak, order_number(p->peak))
ORDER(order_predicted, order_number(p->predicted))
ORDER(order_growth, order_real(p->growth_per_s))
ORDER(order_full, -(isfinite(p->full_in_s) ? p->full_in_s : 1e300))
ORDER(order_busy, order_number(p->busy_percent))
ORDER(order_cpu, order_real(p->cpu_percent))

static bool has_predictions(const plim_live_view *v)
{
    uint32_t i = 0;
    while (i < v->n_processes && !has_value(v->processes[i].predicted))
        i++;
    return i < v->n_processes;
}

static const field fields[] = {
    {"GPU", 5, 0, false, say_gpu, order_gpu, NULL},
    {"PID", 7, 0, true, say_pid, order_pid, NULL},
    {"USER", 9, 3, false, say_user, NULL, NULL},
    {"MEMORY", 10, 0, true, say_memory, order_memory, NULL},
    {"PEAK", 10, 6, true, say_peak, order_peak, NULL},
    {"PREDICTED", 10, 5, true, say_predicted, order_predicted, has_predictions},
    {"GROWTH", 13, 2, true, say_growth, order_growth, NULL},
    {"FULL IN", 7, 4, true, say_full, order_full, NULL},
    {"BUSY%", 5, 8, true, say_busy, order_busy, NULL},
    {"CPU%", 5, 9, true, say_cpu, order_cpu, NULL},
    {"JOB", 9, 7, false, say_job, NULL, NULL},
    {"CONTAINER", 12, 10, false, say_container, NULL, NULL},
    {"COMMAND", 12, 0, false, say_command, NULL, NULL},
};
/* clang-format on */
enum { FIELDS = PLIM_COUNT(fields), BY_MEMORY = 3 };

static bool is_wanted(const field *f, const plim_live_view *v)
{
    return !f->wanted || f->wanted(v);
}

/* Is the filter in what the row says?  Case does not matter. */
static bool text_has(const char *text, const char *word)
{
    for (; *text; text++) {
        size_t i = 0;
        while (word[i] && tolower((unsigned char)text[i]) == tolower((unsigned char)word[i]))
            i++;
        if (!word[i])
            return true;
    }
    return !*word;
}

static bool passes_filter(const plim_screen *s, const plim_live_view *v,
                          const plim_live_process *p)
{
    char text[TEXT_MOST];
    if (!s->filter[0])
        return true;
    for (size_t i = 0; i < FIELDS; i++) {
        if (fields[i].order && fields[i].say != say_pid)
            continue;
        fields[i].say(text, sizeof text, v, p);
        if (text_has(text, s->filter))
            return true;
    }
    return false;
}

/* A row of the table, with the key by which it sorts. */
typedef struct table_row {
    const plim_live_process *p;
    double number;
    const char *text;
    uint32_t at; /* rows that are equal keep their order */
    bool reverse;
} table_row;

static int order_rows(const void *pa, const void *pb)
{
    const table_row *a = pa, *b = pb;
    int by =
        a->text ? strcmp(a->text, b->text) : (a->number < b->number) - (a->number > b->number);
    if (by)
        return a->reverse ? -by : by;
    return a->at < b->at ? -1 : a->at > b->at;
}

static plim_status list_rows(plim_screen *s, const plim_live_view *v, table_row **out, int *n,
                             plim_err *err)
{
    while (!is_wanted(&fields[s->sort], v)) /* by the next column that is there */
        s->sort = (s->sort + 1) % FIELDS;
    const field *f = &fields[s->sort];
    table_row *rows = PLIM_NEW_N(&s->scratch, table_row, v->n_processes + 1u);
    *n = 0;
    if (!rows)
        return plim_oom(err);
    for (uint32_t i = 0; i < v->n_processes; i++) {
        const plim_live_process *p = &v->processes[i];
        char text[TEXT_MOST];
        if (!passes_filter(s, v, p))
            continue;
        table_row row = {.p = p, .at = i, .reverse = s->reverse};
        if (f->order)
            row.number = f->order(p);
        else {
            f->say(text, sizeof text, v, p);
            row.text = plim_arena_str(&s->scratch, plim_str_of(text)).p;
            if (!row.text)
                return plim_oom(err);
        }
        rows[(*n)++] = row;
    }
    if (*n)
        qsort(rows, (size_t)*n, sizeof *rows, order_rows);
    *out = rows;
    return PLIM_OK;
}

/* Which columns say something, and there is room for: those of least interest are left out
 * first. */
static void choose_fields(plim_screen *s, const plim_live_view *v, bool *shown)
{
    int width = -1; /* one less space than columns */
    for (size_t i = 0; i < FIELDS; i++) {
        shown[i] = is_wanted(&fields[i], v);
        width += shown[i] ? fields[i].width + 1 : 0;
    }
    while (width > s->columns) {
        size_t drop = FIELDS;
        for (size_t i = 0; i < FIELDS; i++)
            if (shown[i] && fields[i].drop &&
                (drop == FIELDS || fields[i].drop > fields[drop].drop))
                drop = i;
        if (drop == FIELDS)
            break;
        shown[drop] = false;
        width -= fields[drop].width + 1;
    }
    int x = 0;
    for (size_t i = 0; i < FIELDS; i++) {
        s->field_at[i] = s->field_end[i] = x;
        if (!shown[i])
            continue;
        x += fields[i].width;
        s->field_end[i] = i + 1 == FIELDS ? s->columns : PLIM_MIN(x, s->columns);
        x++;
    }
}

static void draw_field(plim_screen *s, size_t i, int y, uint32_t paint, const char *text)
{
    int width = s->field_end[i] - s->field_at[i];
    if (width <= 0)
        return;
    if (fields[i].right && (int)plim_text_width(plim_str_of(text)) <= width)
        put_right(s, s->field_end[i], y, paint, text);
    else
        put_text(s, s->field_at[i], y, width, paint, text);
}

static void draw_head(plim_screen *s, int y)
{
    fill_row(s, y, PLIM_SCREEN_HEAD);
    for (size_t i = 0; i < FIELDS; i++) {
        char text[32];
        const char *arrow = i != s->sort ? ""
                            : s->ascii   ? (s->reverse ? "^" : "v")
                            : s->reverse ? "\xe2\x96\xb4"
                                         : "\xe2\x96\xbe";
        snprintf(text, sizeof text, "%s%s", fields[i].title, arrow);
        draw_field(s, i, y, PLIM_SCREEN_HEAD, text);
    }
}

static void draw_row(plim_screen *s, const plim_live_view *v, const plim_live_process *p,
                     int y, bool selected)
{
    uint32_t paint = selected ? PLIM_SCREEN_SELECTED : PLIM_SCREEN_PLAIN;
    if (selected)
        fill_row(s, y, paint);
    for (size_t i = 0; i < FIELDS; i++) {
        char text[TEXT_MOST];
        fields[i].say(text, sizeof text, v, p);
        draw_field(s, i, y, paint, text);
    }
}

/* The row of the process that was selected, wherever it is now; else the same row. */
static int find_selected(const plim_screen *s, const table_row *rows, int n)
{
    for (int i = 0; i < n; i++)
        if (rows[i].p->pid == s->pid && rows[i].p->started == s->started &&
            rows[i].p->device == s->device)
            return i;
    return s->selected;
}

static void select_row(plim_screen *s, const table_row *rows, int n, int height)
{
    s->selected = find_selected(s, rows, n) + s->move;
    s->move = 0;
    s->selected = PLIM_MAX(PLIM_MIN(s->selected, n - 1), 0);
    if (s->selected < s->first)
        s->first = s->selected;
    if (s->selected >= s->first + height)
        s->first = s->selected - height + 1;
    s->first = PLIM_MAX(PLIM_MIN(s->first, n - height), 0);
    s->chosen = n > 0;
    if (!s->chosen)
        return;
    const plim_live_process *p = rows[s->selected].p;
    s->pid = p->pid;
    s->started = p->started;
    s->device = p->device;
    s->elsewhere = p->elsewhere;
    snprintf(s->name, sizeof s->name, "%.40s", text_or_dash(p->command));
}

static plim_status draw_table(plim_screen *s, const plim_live_view *v, int y, int height,
                              plim_err *err)
{
    bool shown[FIELDS];
    table_row *rows = NULL;
    int n = 0;
    PLIM_TRY(list_rows(s, v, &rows, &n, err));
    choose_fields(s, v, shown);
    draw_head(s, y);
    s->head_row = y;
    s->table_rows = height - 1;
    s->n_shown = n;
    select_row(s, rows, n, height - 1);
    for (int i = 0; i < height - 1 && s->first + i < n; i++)
        draw_row(s, v, rows[s->first + i].p, y + 1 + i, s->first + i == s->selected);
    if (!n)
        put_line(s, 0, y + 1, PLIM_SCREEN_DIM,
                 s->filter[0] ? "no process matches '%s'" : "no process uses a GPU",
                 s->filter);
    return PLIM_OK;
}

/* ---- the frame ------------------------------------------------------------------------------------ */

static void draw_title(plim_screen *s, const plim_live_view *v)
{
    char right[64];
    const char *gap = s->ascii ? ", " : " \xc2\xb7 ";
    int x = put_line(s, 0, 0, PLIM_SCREEN_BOLD, "plimsoll top");
    if (v->host)
        x += put_line(s, x, 0, PLIM_SCREEN_PLAIN, "%s%s", gap, v->host);
    if (v->nvidia_driver)
        put_line(s, x, 0, PLIM_SCREEN_PLAIN, "%sdriver %s", gap, v->nvidia_driver);
    snprintf(right, sizeof right, "  %u GPU%s, %u process%s", v->n_devices,
             v->n_devices == 1 ? "" : "s", v->n_processes, v->n_processes == 1 ? "" : "es");
    put_right(s, s->columns, 0, PLIM_SCREEN_PLAIN, right);
}

static void draw_foot(plim_screen *s, const plim_live_view *v, int y)
{
    if (s->mode == CONFIRM)
        put_line(s, 0, y, PLIM_SCREEN_ALERT,
                 "End process %" PRIu64 " (%s)?  y: SIGTERM   9: SIGKILL   other keys: no",
                 s->asked.pid, s->asked_name);
    else if (s->mode == FILTER)
        put_line(s, 0, y, PLIM_SCREEN_BOLD, "filter: %s_   Enter: keep   Esc: all", s->filter);
    else if (s->said[0])
        put_line(s, 0, y, PLIM_SCREEN_ALERT, "%s", s->said);
    else {
        int x = put_line(s, 0, y, PLIM_SCREEN_DIM,
                         "q quit  s sort  r reverse  / filter  k end process  h help%s%s",
                         s->filter[0] ? "  filter: " : "", s->filter);
        if (v->n_notes)
            put_line(s, x, y, PLIM_SCREEN_DIM, "  ! %s", v->notes[0]);
    }
}

static void draw_help(plim_screen *s)
{
    static const char *const lines[] = {
        "Up, Down, PgUp, PgDn, Home, End   select a process; its GPU is plotted",
        "s, or a click on a heading        sort by the next column, or that one",
        "r                                 reverse the order",
        "/                                 show processes with this in user, pid, job,",
        "                                  container or command",
        "k                                 end the selected process, after a question",
        "q                                 quit",
        "",
        "MEMORY   on the GPU               PEAK      since this was started",
        "GROWTH   over 16 readings         FULL IN   time until the GPU is full at it",
        "BUSY%    of the GPU's time        CPU%      of one core",
        "PREDICTED   PLIMSOLL_PREDICTED of a process, where one has it",
        "-        not known: the driver does not say, or may not be asked",
    };
    int y = 1;
    for (; y < s->rows - 1; y++)
        fill_row(s, y, PLIM_SCREEN_PLAIN);
    for (size_t i = 0; i < PLIM_COUNT(lines) && (int)i + 2 < s->rows - 1; i++)
        put_text(s, 1, (int)i + 2, s->columns - 1, PLIM_SCREEN_PLAIN, lines[i]);
}

static plim_status draw_body(plim_screen *s, const plim_live_monitor *l,
                             const plim_live_view *v, plim_err *err)
{
    int room = s->rows - 2, y = 1; /* without title and foot */
    int devices = PLIM_MIN((int)v->n_devices, PLIM_MAX((room - TABLE_LEAST) / 2, 1));
    for (int i = 0; i < devices; i++, y += 2)
        draw_device(s, &v->devices[i], y);
    if (devices < (int)v->n_devices && y + TABLE_LEAST < s->rows)
        put_line(s, 0, y++, PLIM_SCREEN_DIM, "%d more GPUs", (int)v->n_devices - devices);
    int left = s->rows - 1 - y;
    int plot = v->n_devices ? PLIM_MIN(left / 2 - 1, PLOT_MOST) : 0;
    if (plot < PLOT_LEAST)
        plot = 0;
    plim_status st = draw_table(s, v, y + plot, left - plot, err); /* selects the device */
    return !st && plot ? draw_plots(s, l, v, y, plot, err) : st;
}

plim_status plim_screen_draw(plim_screen *s, const plim_live_monitor *l,
                             const plim_live_view *v, int columns, int rows,
                             plim_screen_cell *cells, plim_err *err)
{
    PLIM_REQUIRE(s, err);
    PLIM_REQUIRE(v, err);
    PLIM_REQUIRE(cells, err);
    if (columns < 1 || rows < 1)
        return plim_fail(err, PLIM_EUSAGE, 0, "a screen of %d x %d cells", columns, rows);
    plim_arena_reset(&s->scratch);
    s->cells = cells;
    s->columns = columns;
    s->rows = rows;
    for (int y = 0; y < rows; y++)
        fill_row(s, y, PLIM_SCREEN_PLAIN);
    if (columns < LEAST_COLUMNS || rows < LEAST_ROWS) {
        put_line(s, 0, 0, PLIM_SCREEN_ALERT, "too small: %d x %d", columns, rows);
        return PLIM_OK;
    }
    plim_status st = draw_body(s, l, v, err);
    draw_title(s, v);
    if (s->mode == HELP)
        draw_help(s);
    draw_foot(s, v, rows - 1);
    return st;
}

/* ---- keys ------------------------------------------------------------------------------------------ */

static void type_filter(plim_screen *s, uint32_t key)
{
    size_t n = strlen(s->filter);
    if (key == PLIM_KEY_ENTER || key == PLIM_KEY_ESCAPE) {
        s->mode = WATCH;
        if (key == PLIM_KEY_ESCAPE)
            s->filter[0] = '\0';
    } else if (key == PLIM_KEY_BACKSPACE && n)
        s->filter[n - 1] = '\0';
    else if (key >= ' ' && key < 0x7f && n + 1 < FILTER_MOST) {
        s->filter[n] = (char)key;
        s->filter[n + 1] = '\0';
    }
}

static void move_selection(plim_screen *s, uint32_t key)
{
    int page = PLIM_MAX(s->table_rows - 1, 1), all = s->n_shown;
    s->move += key == PLIM_KEY_UP          ? -1
               : key == PLIM_KEY_DOWN      ? 1
               : key == PLIM_KEY_PAGE_UP   ? -page
               : key == PLIM_KEY_PAGE_DOWN ? page
               : key == PLIM_KEY_HOME      ? -all
               : key == PLIM_KEY_END       ? all
                                           : 0;
}

static void ask_to_end(plim_screen *s)
{
    s->mode = CONFIRM;
    s->asked = (plim_screen_action){PLIM_SCREEN_KILL, s->pid, s->started, false};
    snprintf(s->asked_name, sizeof s->asked_name, "%s", s->name);
}

static plim_screen_action watch_key(plim_screen *s, uint32_t key)
{
    plim_screen_action action = {.wish = PLIM_SCREEN_STAY};
    switch (key) {
    case 'q': action.wish = PLIM_SCREEN_QUIT; break;
    case 's': s->sort = (s->sort + 1) % FIELDS; break;
    case 'r': s->reverse = !s->reverse; break;
    case '/': s->mode = FILTER; break;
    case 'h':
    case '?': s->mode = HELP; break;
    case PLIM_KEY_ESCAPE: s->filter[0] = '\0'; break;
    case 'k':
        if (s->chosen && s->elsewhere)
            plim_screen_say(s, "this process belongs to another namespace");
        else if (s->chosen)
            ask_to_end(s);
        break;
    default: move_selection(s, key);
    }
    return action;
}

plim_screen_action plim_screen_key(plim_screen *s, uint32_t key)
{
    plim_screen_action action = {.wish = PLIM_SCREEN_STAY};
    if (!s)
        return action;
    s->said[0] = '\0';
    switch (s->mode) {
    case WATCH: return watch_key(s, key);
    case FILTER: type_filter(s, key); break;
    case HELP: s->mode = WATCH; break;
    case CONFIRM:
        s->mode = WATCH;
        if (key == 'y' || key == '9')
            action = s->asked;
        action.force = key == '9';
        break;
    }
    return action;
}

void plim_screen_click(plim_screen *s, int column, int row)
{
    if (!s || s->mode != WATCH)
        return;
    if (row == s->head_row) {
        for (uint32_t i = 0; i < FIELDS; i++)
            if (column >= s->field_at[i] && column < s->field_end[i]) {
                s->reverse = s->sort == i ? !s->reverse : false;
                s->sort = i;
            }
    } else if (row > s->head_row && row <= s->head_row + s->table_rows)
        s->move = s->first + row - s->head_row - 1 - s->selected;
}

void plim_screen_say(plim_screen *s, const char *text)
{
    if (s && text)
        snprintf(s->said, sizeof s->said, "%s", text);
}

plim_status plim_screen_new(bool ascii, plim_screen **out, plim_err *err)
{
    plim_arena a = PLIM_ARENA_INIT;
    PLIM_REQUIRE(out, err);
    plim_screen *s = PLIM_NEW(&a, plim_screen);
    if (!s)
        return plim_oom(err);
    s->keep = a;
    s->ascii = ascii;
    s->sort = BY_MEMORY;
    *out = s;
    return PLIM_OK;
}

void plim_screen_free(plim_screen *s)
{
    if (!s)
        return;
    plim_arena a = s->keep;
    plim_arena_free(&s->scratch);
    plim_arena_free(&a);
}
