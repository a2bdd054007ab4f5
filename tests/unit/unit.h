/* unit.h -- cmocka, and the one check that tables of cases need: a failure names the case. */
#ifndef PLIM_UNIT_H
#define PLIM_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* CHECK("an empty dim is no bytes", n == 0) */
#define CHECK(why, cond)                                                                      \
    do {                                                                                      \
        if (!(cond))                                                                          \
            fail_msg("%s: not so: %s", (why), #cond);                                         \
    } while (0)

#define CHECK_STR(why, got, want)                                                             \
    do {                                                                                      \
        if (strcmp((got), (want)) != 0)                                                       \
            fail_msg("%s: got \"%s\", want \"%s\"", (why), (got), (want));                    \
    } while (0)

#endif
