/* report_compare.c -- estimates of several models side by side, as a table and as a picture. */
#include <limits.h>
#include <math.h>

#include "report/blocks.h"
#include "report/figures.h"
#include "report/svg.h"
#include "torch/torch.h"

/* The estimates of a report. */
typedef struct plim_compare {
    const plim_estimate *const *models;
    uint32_t n_models;
    const char *note; /* "": none */
} plim_compare;

/* MACs of one sample; of the whole input, if it has no batch. */
static uint64_t sample_macs(const plim_estimate *e)
{
    return e->model->batch > 0 ? e->forward_macs / (uint64_t)e->model->batch : e->forward_macs;
}

static plim_cell cell_batch(int64_t batch)
{
    return batch > 0 ? plim_cell_int(batch) : (plim_cell){.kind = PLIM_CELL_UNKNOWN};
}

/* clang-format off */
PLIM_GETTER(compare_model, plim_estimate, plim_cell_text(r->model->name))
PLIM_GETTER(compare_batch, plim_estimate, cell_batch(r->model->batch))
PLIM_GETTER(compare_parameters, plim_estimate, plim_cell_u64(PLIM_CELL_METRIC, r->model->parameters))
PLIM_GETTER(compare_sample_macs, plim_estimate, plim_cell_u64(PLIM_CELL_METRIC, sample_macs(r)))
PLIM_GETTER(compare_top1, plim_estimate, plim_cell_rate(r->model->top1))
/* clang-format on */

#include "answers/compare.def"

static plim_rows compare_rows(const plim_compare *list)
{
    return PLIM_FIGURE_ROWS(compared, list->models, list->n_models);
}

static void compare_notes(plim_page *p, const plim_compare *list, bool card)
{
    plim_buf tight;
    plim_buf_init(&tight, &p->arena);
    for (uint32_t i = 0; i < list->n_models; i++)
        if (list->models[i]->fits == PLIM_FITS_YES && !list->models[i]->margin_kept)
            plim_buf_printf(&tight, "%s%s", tight.n ? ", " : "", list->models[i]->model->name);
    plim_apart(p);
    plim_paragraph(
        p, PLIM_PAINT_DIM,
        "MACs: of the forward pass of one sample; saved: activations that autograd "
        "keeps for backward; peak: allocated, as torch.cuda.max_memory_allocated(); "
        "top-1: accuracy in %, published, on ImageNet",
        0);
    plim_paragraph(p, PLIM_PAINT_DIM,
                   card ? "step: the time of a step on the card, an estimate" : NULL, 0);
    plim_report_tight(p, &tight, list->models[0]->settings);
    plim_if_unknown(p, "- unknown");
}

/* ---- the picture: accuracy against MACs, circles by parameters --------------------- */

enum {
    PICTURE_WIDTH = 900,
    PICTURE_HEIGHT = 620,
    PICTURE_LEFT = 80, /* margins of the plot */
    PICTURE_RIGHT = 30,
    PICTURE_TOP = 50,
    PICTURE_BOTTOM = 70,
    PICTURE_RADIUS = 46, /* of the model with the most parameters */
    PICTURE_LETTER = 13
};

/* A scale from values to pixels. */
typedef struct picture_axis {
    double from, to;       /* values (their logarithms) at the ends */
    double pixel0, pixel1; /* where the ends are */
    bool log;
} picture_axis;

static double axis_at(const picture_axis *a, double v)
{
    double x = a->log ? log10(v) : v;
    return a->pixel0 + (x - a->from) / (a->to - a->from) * (a->pixel1 - a->pixel0);
}

/* 1, 2 or 5 times a power of ten: the step with which a range has about `n` of them. */
static double round_step(double range, int n)
{
    double power = pow(10, floor(log10(range / n))), part = range / n / power;
    return power * (part > 5 ? 10 : part > 2 ? 5 : part > 1 ? 2 : 1);
}

/* A number of the axis: "0.5", "4". */
static void axis_label(plim_page *p, const picture_axis *a, bool upright, double v)
{
    const char *grey = "#dddddd";
    double at = axis_at(a, v);
    double bottom = PICTURE_HEIGHT - PICTURE_BOTTOM, right = PICTURE_WIDTH - PICTURE_RIGHT;
    plim_text t = plim_fmt_fixed(v, 3);
    if (upright) {
        plim_svg_line(p, PICTURE_LEFT, at, right, at, grey);
        plim_svg_text(p, PICTURE_LEFT - 8, at + 4, PICTURE_LETTER, PLIM_SVG_END, t.s);
    } else {
        plim_svg_line(p, at, PICTURE_TOP, at, bottom, grey);
        plim_svg_text(p, at, bottom + 20, PICTURE_LETTER, PLIM_SVG_MIDDLE, t.s);
    }
}

static void draw_axis(plim_page *p, const picture_axis *a, bool upright)
{
    if (!a->log) {
        double step = round_step(a->to - a->from, 7);
        int last = (int)floor(a->to / step + 1e-6);
        for (int i = (int)ceil(a->from / step); i <= last; i++)
            axis_label(p, a, upright, i * step);
        return;
    }
    for (int power = (int)floor(a->from); power <= (int)ceil(a->to); power++)
        for (int k = 1; k <= 5; k += k == 2 ? 3 : 1) { /* 1, 2, 5 */
            double v = k * pow(10, power);
            if (log10(v) >= a->from - 1e-9 && log10(v) <= a->to + 1e-9)
                axis_label(p, a, upright, v);
        }
}

/* An axis over the values with some room at the ends, so that no circle is cut. */
static picture_axis axis_over(double least, double most, double pixel0, double pixel1)
{
    const double decades = 20, room = 0.12;
    picture_axis a = {.pixel0 = pixel0, .pixel1 = pixel1, .log = most > least * decades};
    a.from = a.log ? log10(least) : least;
    a.to = a.log ? log10(most) : most;
    double range = a.to > a.from ? a.to - a.from : 0.2 * a.to;
    bool zero = !a.log && a.from - room * range < 0;
    a.from = zero ? 0 : a.from - room * range;
    a.to += room * range;
    return a;
}

typedef struct picture_point {
    const plim_estimate *e;
    uint32_t color; /* by the position in the list */
    double x, y, r, macs;
    double label_x, label_y, label_width;
} picture_point;

static double radius_of(uint64_t parameters, uint64_t most)
{
    return PICTURE_RADIUS * sqrt((double)parameters / (double)PLIM_MAX(most, UINT64_C(1)));
}

/* Does a circle reach into the label of `at`? */
static bool circle_meets(const picture_point *circle, const picture_point *at)
{
    double top = at->label_y - PICTURE_LETTER, right = at->label_x + at->label_width;
    double dx = circle->x - PLIM_MIN(PLIM_MAX(circle->x, at->label_x), right);
    double dy = circle->y - PLIM_MIN(PLIM_MAX(circle->y, top), at->label_y);
    return dx * dx + dy * dy < circle->r * circle->r;
}

/* How badly the label of point i lies where it is: outside the plot, over a label placed
 * before it, over another circle. */
static int label_cost(const picture_point *points, uint32_t n, uint32_t i)
{
    enum { OUTSIDE = 1000, LABEL = 100, CIRCLE = 10 };
    const picture_point *at = &points[i];
    double right = at->label_x + at->label_width;
    int cost = 0;
    if (at->label_x < PICTURE_LEFT || right > PICTURE_WIDTH - PICTURE_RIGHT ||
        at->label_y < PICTURE_TOP + PICTURE_LETTER ||
        at->label_y > PICTURE_HEIGHT - PICTURE_BOTTOM)
        cost += OUTSIDE;
    for (uint32_t k = 0; k < n; k++) {
        bool level = fabs(points[k].label_y - at->label_y) < PICTURE_LETTER;
        if (k < i && level && points[k].label_x < right &&
            at->label_x < points[k].label_x + points[k].label_width)
            cost += LABEL;
        if (k != i && circle_meets(&points[k], at))
            cost += CIRCLE;
    }
    return cost;
}

/* Inside the circle if it is wide enough, else beside it: at the best of these places, the
 * first of those that are as good. */
static void place_label(picture_point *points, uint32_t n, uint32_t i)
{
    picture_point *at = &points[i];
    const double gap = at->r + 5, half = PICTURE_LETTER / 3.0;
    double wide = at->label_width = plim_svg_text_width(at->e->model->name, PICTURE_LETTER);
    const double places[][2] = {
        {-wide / 2, half}, /* inside */
        {gap, half},
        {-gap - wide, half},
        {-wide / 2, -gap},
        {-wide / 2, gap + PICTURE_LETTER},
        {gap * 0.7, -gap * 0.7},
        {gap * 0.7, gap * 0.7 + PICTURE_LETTER},
        {-gap * 0.7 - wide, -gap * 0.7},
        {-gap * 0.7 - wide, gap * 0.7 + PICTURE_LETTER},
    };
    int least = INT_MAX;
    size_t best = 0;
    for (size_t k = wide < 2 * at->r ? 0 : 1; k < PLIM_COUNT(places); k++) {
        at->label_x = at->x + places[k][0];
        at->label_y = at->y + places[k][1];
        int cost = label_cost(points, n, i);
        if (cost < least) {
            least = cost;
            best = k;
        }
    }
    at->label_x = at->x + places[best][0];
    at->label_y = at->y + places[best][1];
}

/* The models that can be shown, those with the most parameters first, so that small circles
 * lie upon large ones. */
static uint32_t picture_points(const plim_compare *list, picture_point *points)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->n_models; i++) {
        const plim_estimate *e = list->models[i];
        if (e->model->top1 <= 0 || !sample_macs(e))
            continue;
        uint32_t at = n++;
        while (at && points[at - 1].e->model->parameters < e->model->parameters) {
            points[at] = points[at - 1];
            at--;
        }
        points[at] = (picture_point){.e = e, .color = i, .macs = (double)sample_macs(e) / 1e9};
    }
    return n;
}

/* Three circles that say how many parameters their size means. */
static void draw_sizes(plim_page *p, uint64_t most)
{
    static const double parts[] = {1, 4, 20};
    double whole = round_step((double)most / 2, 1), x = PICTURE_WIDTH - PICTURE_RIGHT;
    for (size_t i = PLIM_COUNT(parts); i-- > 0;) {
        uint64_t parameters = (uint64_t)(whole / parts[i]);
        double r = radius_of(parameters, most);
        double y = PICTURE_HEIGHT - PICTURE_BOTTOM - 12 - r;
        plim_text label = plim_fmt_metric(parameters);
        double half = PLIM_MAX(r, plim_svg_text_width(label.s, PICTURE_LETTER) / 2);
        x -= half + 8;
        plim_svg_circle(p, x, y, r, "#888888");
        plim_svg_text(p, x, y - r - 5, PICTURE_LETTER - 2, PLIM_SVG_MIDDLE, label.s);
        x -= half + 8;
    }
}

static void draw_points(plim_page *p, picture_point *points, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        plim_svg_circle(p, points[i].x, points[i].y, points[i].r,
                        plim_svg_color(points[i].color));
    for (uint32_t i = 0; i < n; i++) {
        place_label(points, n, i);
        plim_svg_text(p, points[i].label_x, points[i].label_y, PICTURE_LETTER, PLIM_SVG_START,
                      points[i].e->model->name);
    }
}

/* Names the models that the picture leaves out. */
static void draw_left_out(plim_page *p, const plim_compare *list)
{
    plim_buf names;
    plim_buf_init(&names, &p->arena);
    for (uint32_t i = 0; i < list->n_models; i++)
        if (list->models[i]->model->top1 <= 0)
            plim_buf_printf(&names, "%s%s", names.n ? ", " : "no published accuracy: ",
                            list->models[i]->model->name);
    p->buf.bad |= names.bad;
    if (names.n)
        plim_svg_text(p, PICTURE_LEFT, PICTURE_HEIGHT - 4, PICTURE_LETTER - 2, PLIM_SVG_START,
                      names.p);
}

static plim_status compare_svg(plim_page *p, const void *subject, plim_err *err)
{
    const plim_compare *list = subject;
    picture_point *points = PLIM_NEW_N(&p->arena, picture_point, list->n_models);
    uint32_t n = points ? picture_points(list, points) : 0;
    if (!points)
        return plim_oom(err);
    if (!n)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "the picture needs a published top-1 accuracy, and none of these "
                         "models has one");
    double least[2] = {points[0].macs, points[0].e->model->top1},
           most[2] = {least[0], least[1]};
    for (uint32_t i = 1; i < n; i++) {
        const double v[2] = {points[i].macs, points[i].e->model->top1};
        for (int k = 0; k < 2; k++) {
            least[k] = PLIM_MIN(least[k], v[k]);
            most[k] = PLIM_MAX(most[k], v[k]);
        }
    }
    double bottom = PICTURE_HEIGHT - PICTURE_BOTTOM, right = PICTURE_WIDTH - PICTURE_RIGHT;
    picture_axis x = axis_over(least[0], most[0], PICTURE_LEFT, right);
    picture_axis y = axis_over(least[1], most[1], bottom, PICTURE_TOP);
    for (uint32_t i = 0; i < n; i++) {
        points[i].x = axis_at(&x, points[i].macs);
        points[i].y = axis_at(&y, points[i].e->model->top1);
        points[i].r =
            radius_of(points[i].e->model->parameters, points[0].e->model->parameters);
    }
    const char *title = "Top-1 accuracy against computation; circles by parameters";
    plim_svg_open(p, PICTURE_WIDTH, PICTURE_HEIGHT, title);
    plim_svg_text(p, PICTURE_LEFT, 28, PICTURE_LETTER + 4, PLIM_SVG_START, title);
    draw_axis(p, &x, false);
    draw_axis(p, &y, true);
    plim_svg_line(p, PICTURE_LEFT, bottom, right, bottom, "#222222");
    plim_svg_line(p, PICTURE_LEFT, PICTURE_TOP, PICTURE_LEFT, bottom, "#222222");
    plim_svg_text(p, (PICTURE_LEFT + right) / 2, PICTURE_HEIGHT - 22, PICTURE_LETTER + 1,
                  PLIM_SVG_MIDDLE,
                  x.log ? "billions of multiply-accumulates per sample, logarithmic"
                        : "billions of multiply-accumulates per sample");
    plim_svg_text_up(p, 28, (PICTURE_TOP + bottom) / 2, PICTURE_LETTER + 1,
                     "top-1 accuracy on ImageNet, percent");
    draw_sizes(p, points[0].e->model->parameters);
    draw_points(p, points, n);
    draw_left_out(p, list);
    plim_svg_close(p);
    return PLIM_OK;
}

static plim_status compare_build(plim_page *p, const void *subject, plim_err *err)
{
    const plim_compare *list = subject;
    plim_compare *data = PLIM_NEW(&p->arena, plim_compare);
    bool card = list->models[0]->fits != PLIM_FITS_NO_CARD;
    plim_rows r = compare_rows(list);
    if (!data)
        return plim_oom(err);
    *data = *list;
    data->note = p->note.p;
    plim_report_settings_line(p, list->models, list->n_models);
    plim_sheet(p, r);
    r.hidden = card ? NULL : "time_usual_ms,fits";
    plim_table_main(p, r);
    compare_notes(p, list, card);
    plim_data(p, "plimsoll/compare/1", plim_compare_figures, data, NULL, 0);
    plim_picture(p, compare_svg, list);
    return PLIM_OK;
}

static const plim_model_info *compare_model_at(const void *subject, uint32_t i)
{
    const plim_compare *list = subject;
    return i < list->n_models ? list->models[i]->model : NULL;
}

plim_status plim_compare_print(const plim_estimate *const *list, uint32_t n, plim_render r,
                               const plim_style *st, plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "compare", .model = compare_model_at, .build = compare_build};
    const plim_compare all = {list, n, NULL};
    bool whole = list && n;
    for (uint32_t i = 0; i < n && whole; i++)
        whole = list[i] != NULL;
    return plim_report_print(&report, whole ? &all : NULL, r, st, put, ud, err);
}
