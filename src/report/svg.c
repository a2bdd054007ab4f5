/* svg.c -- see svg.h. */
#include "report/svg.h"

static const char *svg_number(double v, plim_text *t)
{
    *t = plim_fmt_fixed(v < 0 ? -v : v, 1);
    if (v < 0) {
        memmove(t->s + 1, t->s, sizeof t->s - 1);
        t->s[0] = '-';
    }
    return t->s;
}

/* ` name="12.5"` */
static void svg_attribute(plim_page *p, const char *name, double v)
{
    plim_text t;
    plim_buf_printf(&p->buf, " %s=\"%s\"", name, svg_number(v, &t));
}

static void svg_escaped(plim_page *p, const char *text)
{
    plim_str s = plim_page_clean(p, text);
    for (size_t i = 0; i < s.n; i++) {
        const char *as = s.p[i] == '&'   ? "&amp;"
                         : s.p[i] == '<' ? "&lt;"
                         : s.p[i] == '>' ? "&gt;"
                                         : NULL;
        if (as)
            plim_page_puts(p, as);
        else
            plim_buf_add(&p->buf, (plim_str){s.p + i, 1});
    }
}

const char *plim_svg_color(uint32_t i)
{
    static const char *const colors[PLIM_SVG_COLORS] = {"#0072b2", "#d55e00", "#009e73",
                                                        "#cc79a7", "#e69f00", "#56b4e9",
                                                        "#882255", "#b8a500"};
    return colors[i % PLIM_SVG_COLORS];
}

void plim_svg_open(plim_page *p, double width, double height, const char *title)
{
    plim_text w, h;
    plim_buf_printf(&p->buf,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %s %s\" "
                    "font-family=\"sans-serif\" role=\"img\">\n<title>",
                    svg_number(width, &w), svg_number(height, &h));
    svg_escaped(p, title);
    plim_page_puts(p, "</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
}

void plim_svg_line(plim_page *p, double x1, double y1, double x2, double y2, const char *color)
{
    plim_page_puts(p, "<line");
    svg_attribute(p, "x1", x1);
    svg_attribute(p, "y1", y1);
    svg_attribute(p, "x2", x2);
    svg_attribute(p, "y2", y2);
    plim_buf_printf(&p->buf, " stroke=\"%s\"/>\n", color);
}

void plim_svg_circle(plim_page *p, double x, double y, double r, const char *color)
{
    plim_page_puts(p, "<circle");
    svg_attribute(p, "cx", x);
    svg_attribute(p, "cy", y);
    svg_attribute(p, "r", r);
    plim_buf_printf(&p->buf, " fill=\"%s\" fill-opacity=\"0.45\" stroke=\"%s\"/>\n", color,
                    color);
}

void plim_svg_steps(plim_page *p, double x1, double x2, const double *y, uint32_t n,
                    double bottom, const char *color)
{
    plim_text a, b;
    plim_buf_printf(&p->buf, "<path d=\"M%s %s", svg_number(x1, &a), svg_number(bottom, &b));
    for (uint32_t i = 0; i < n; i++)
        plim_buf_printf(&p->buf, "V%sH%s", svg_number(y[i], &a),
                        svg_number(x1 + (x2 - x1) * (i + 1) / n, &b));
    plim_buf_printf(&p->buf, "V%sZ\" fill=\"%s\"/>\n", svg_number(bottom, &b), color);
}

void plim_svg_text(plim_page *p, double x, double y, double size, plim_svg_anchor anchor,
                   const char *text)
{
    static const char *const anchors[] = {"start", "middle", "end"};
    plim_page_puts(p, "<text");
    svg_attribute(p, "x", x);
    svg_attribute(p, "y", y);
    svg_attribute(p, "font-size", size);
    plim_buf_printf(&p->buf, " text-anchor=\"%s\" fill=\"#222222\">", anchors[anchor]);
    svg_escaped(p, text);
    plim_page_puts(p, "</text>\n");
}

void plim_svg_text_up(plim_page *p, double x, double y, double size, const char *text)
{
    plim_text tx, ty;
    plim_buf_printf(&p->buf, "<g transform=\"translate(%s %s) rotate(-90)\">\n",
                    svg_number(x, &tx), svg_number(y, &ty));
    plim_svg_text(p, 0, 0, size, PLIM_SVG_MIDDLE, text);
    plim_page_puts(p, "</g>\n");
}

void plim_svg_close(plim_page *p) { plim_page_puts(p, "</svg>\n"); }

double plim_svg_text_width(const char *text, double size)
{
    const double average = 0.55; /* of a letter of a sans serif, in its height */
    return plim_text_width(plim_str_of(text)) * size * average;
}
