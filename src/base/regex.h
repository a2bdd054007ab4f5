/* regex.h -- regular expressions as C++'s std::regex_search takes them.  What is common is
 * supported: characters, '.', classes such as [a-z] and \d, groups, '|', '*', '+', '?' and the
 * anchors '^' and '$'.  Time is at most proportional to the lengths of expression and text. */
#ifndef PLIM_BASE_REGEX_H
#define PLIM_BASE_REGEX_H

#include "base/base.h"

enum { PLIM_REGEX_STATES = 512, PLIM_REGEX_CLASSES = 64 };

typedef struct plim_regex {
    struct plim_regex_step {
        uint8_t op, c;       /* a character, or the number of a class */
        int16_t next, other; /* where to go on, from here */
    } step[PLIM_REGEX_STATES];
    uint8_t set[PLIM_REGEX_CLASSES][32]; /* one bit for each byte */
    uint16_t n, n_sets;
} plim_regex;

/* PLIM_EUSAGE says what of the expression is not understood, and where. */
plim_status plim_regex_compile(plim_regex *out, plim_str text, plim_err *err);
/* Whether it matches some part of the text. */
bool plim_regex_finds(const plim_regex *r, plim_str text);

#endif
