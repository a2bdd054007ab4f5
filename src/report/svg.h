/* svg.h -- writes pictures as SVG 1.1: shapes and text with positions in pixels.  Private to the
 * room.
 *
 * A picture needs nothing beside it: no style sheet, no script, no font of its own.  Colours are
 * those that people with colour blindness can tell apart.  Numbers are written without the
 * locale, with a tenth of a pixel. */
#ifndef PLIM_SVG_H
#define PLIM_SVG_H

#include "report/report.h"

enum { PLIM_SVG_COLORS = 8 };
/* "#0072b2": the colour of the i-th thing of a kind; they repeat.  src: M. Okabe and K. Ito,
 * Color Universal Design, 2008, with wine and olive for black and yellow. */
const char *plim_svg_color(uint32_t i);

typedef enum plim_svg_anchor { PLIM_SVG_START, PLIM_SVG_MIDDLE, PLIM_SVG_END } plim_svg_anchor;

void plim_svg_open(plim_page *p, double width, double height, const char *title);
void plim_svg_line(plim_page *p, double x1, double y1, double x2, double y2,
                   const char *color);
/* Half transparent, with a firm edge. */
void plim_svg_circle(plim_page *p, double x, double y, double r, const char *color);
/* The area under n steps of equal width from x1 to x2: between the heights y[i] and `bottom`. */
void plim_svg_steps(plim_page *p, double x1, double x2, const double *y, uint32_t n,
                    double bottom, const char *color);
/* `text` is cleaned and escaped; `size` is the height of the letters. */
void plim_svg_text(plim_page *p, double x, double y, double size, plim_svg_anchor anchor,
                   const char *text);
/* Likewise, turned by a quarter to be read from below. */
void plim_svg_text_up(plim_page *p, double x, double y, double size, const char *text);
void plim_svg_close(plim_page *p);

/* The width in pixels that text of this size takes, about. */
double plim_svg_text_width(const char *text, double size);

#endif
