/* places.c -- see places.h */
#include "places.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The directory of this program, with a slash at the end; "" if /proc cannot be read. */
static void find_home(char *out, size_t n)
{
    ssize_t got = readlink("/proc/self/exe", out, n - 1);
    out[got > 0 ? (size_t)got : 0] = '\0';
    char *slash = strrchr(out, '/');
    if (slash)
        slash[1] = '\0';
}

bool plim_place_find(char *out, size_t n, const char *installed, const char *built)
{
    char home[PATH_MAX / 2];
    const char *const places[] = {installed, built};
    find_home(home, sizeof home);
    for (int i = 0; i < 2; i++) {
        int used = snprintf(out, n, "%s%s", home, places[i]);
        if (used > 0 && (size_t)used < n && !access(out, R_OK))
            return true;
    }
    return false;
}
