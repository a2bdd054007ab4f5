/* folder.c -- see folder.h */
#include "folder.h"
#include "console.h"
#include "lifeline.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char template[] = "plimsoll-XXXXXX", extension[] = ".lifeline";

/* Empties the folder that is open, and closes it.  A link is removed, not followed. */
static void empty_folder(int fd)
{
    DIR *d = fdopendir(fd);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || !unlinkat(fd, e->d_name, 0))
            continue;
        int below = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0)
            empty_folder(below);
        unlinkat(fd, e->d_name, AT_REMOVEDIR);
    }
    if (d)
        closedir(d);
    else
        close(fd);
}

/* Removes a folder if it is one of ours, and who made it was killed.  Its name alone may be
 * anybody's, such as plimsoll-backup; one with a lifeline of the same name is none but ours. */
static void sweep_folder(int place, const char *name)
{
    struct stat st;
    char lifeline[sizeof template + sizeof extension];
    snprintf(lifeline, sizeof lifeline, "%.*s%s", (int)(sizeof template - 1), name, extension);
    int fd = openat(place, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    bool ours = !fstat(fd, &st) && st.st_uid == geteuid() && !(st.st_mode & 077);
    if (!ours || !plim_lifeline_lost(fd, lifeline)) {
        close(fd);
        return;
    }
    empty_folder(fd);
    unlinkat(place, name, AT_REMOVEDIR);
}

static void sweep_place(const char *place)
{
    const size_t fixed = sizeof template - sizeof "XXXXXX";
    DIR *d = opendir(place);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strlen(e->d_name) == sizeof template - 1 && !strncmp(e->d_name, template, fixed))
            sweep_folder(dirfd(d), e->d_name);
    if (d)
        closedir(d);
}

int plim_folder_make(plim_folder *f)
{
    char here[PATH_MAX] = "";
    const char *tmp = getenv("TMPDIR");
    tmp = tmp && *tmp ? tmp : "/tmp";
    sweep_place(tmp);
    if (*tmp != '/' && !getcwd(here, sizeof here))
        return plim_console_failed("cannot find the folder of", tmp, errno);
    int n =
        snprintf(f->path, sizeof f->path, "%s%s%s/%s", here, *here ? "/" : "", tmp, template);
    errno = ENAMETOOLONG;
    if (n < 0 || (size_t)n >= sizeof f->path || !mkdtemp(f->path))
        return plim_console_failed("cannot create a folder in", tmp, errno);
    snprintf(f->lifeline_path, sizeof f->lifeline_path, "%s%s%s", f->path,
             strrchr(f->path, '/'), extension);
    f->lifeline = plim_lifeline_open(f->lifeline_path);
    return PLIM_EXIT_DONE;
}

void plim_folder_remove(plim_folder *f)
{
    int fd = open(f->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        empty_folder(fd);
    rmdir(f->path);
    if (f->lifeline >= 0)
        close(f->lifeline);
}
