/* places.c -- see places.h */
#include "places.h"
#include "console.h"
#include "memory.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROGRAM "/proc/self/exe"
#define ABOVE "../"

/* The directory of this program, with a slash at the end.  Where /proc cannot be read it is not
 * known: a path from the working directory would be somebody else's. */
static bool find_home(char *out, size_t n)
{
    ssize_t got = readlink(PROGRAM, out, n);
    if (got <= 0 || (size_t)got >= n || *out != '/')
        return false;
    out[got] = '\0';
    strrchr(out, '/')[1] = '\0';
    return true;
}

/* Whether the file and the folders on the way to it, from `home` on, belong to this user, to
 * root or to the owner of this program.  Next to one that lies in a folder such as /tmp
 * anybody can put theirs. */
static bool is_trusted(char *path, size_t home)
{
    struct stat program, st;
    char *p = path + home;
    if (stat(PROGRAM, &program))
        return false;
    if (strncmp(p, ABOVE, strlen(ABOVE)) == 0)
        p += strlen(ABOVE);
    for (;; p++) {
        p += strcspn(p, "/");
        char end = *p;
        *p = '\0';
        bool trusted = !stat(path, &st) &&
                       (!st.st_uid || st.st_uid == geteuid() || st.st_uid == program.st_uid);
        *p = end;
        if (!trusted || !end)
            return trusted;
    }
}

bool plim_place_find(char *out, size_t n, const char *installed, const char *built)
{
    char home[PATH_MAX / 2];
    const char *const places[] = {installed, built};
    if (!find_home(home, sizeof home))
        return false;
    for (int i = 0; i < 2; i++) {
        int used = snprintf(out, n, "%s%s", home, places[i]);
        if (used > 0 && (size_t)used < n && !access(out, R_OK) &&
            is_trusted(out, strlen(home)))
            return true;
    }
    return false;
}

/* The path, a separator, and what is there; false: there is no memory. */
static bool set_first(const char *variable, const char *separators, const char *path,
                      const char *before)
{
    plim_memory m = {0};
    size_t n = strlen(path) + 1 + strlen(before) + 1;
    char *both = plim_memory_new(&m, n);
    if (both)
        snprintf(both, n, "%s%.*s%s", path, *before ? 1 : 0, separators, before);
    bool done = both && !setenv(variable, both, 1);
    plim_memory_free(&m);
    return done;
}

int plim_place_prepend(const char *variable, const char *separators, const char *path)
{
    plim_err err = {.code = PLIM_EIO};
    const char *before = getenv(variable), *at = strpbrk(path, separators);
    if (at)
        snprintf(err.msg, sizeof err.msg, "cannot list '%.150s' in %s, where '%c' ends a path",
                 path, variable, *at);
    else if (!set_first(variable, separators, path, before ? before : ""))
        snprintf(err.msg, sizeof err.msg, "cannot set %s: out of memory", variable);
    return *err.msg ? plim_console_error(&err) : PLIM_EXIT_DONE;
}
