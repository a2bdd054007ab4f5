/* store.c -- see store.h. */
#include "hub/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char new_name[] = ".new-XXXXXX"; /* no word that is checked begins with '.' */

static plim_status no_write(const char *what, const char *path, int error, plim_err *err)
{
    return plim_fail(err, PLIM_EIO, 0,
                     "cannot %s '%.120s': %s; what is fetched is kept there, or in "
                     "XDG_CACHE_HOME",
                     what, path, strerror(error));
}

static plim_str join_path(plim_arena *a, plim_str folder, plim_str name)
{
    return plim_arena_printf(a, PLIM_STR_FMT "/" PLIM_STR_FMT, PLIM_STR_ARG(folder),
                             PLIM_STR_ARG(name));
}

/* ---- folders ----------------------------------------------------------------------------- */

/* A folder of plimsoll's own: no link, which might lead to what others can write, and the user's. */
static plim_status check_own(const char *path, plim_err *err)
{
    struct stat st;
    if (lstat(path, &st))
        return no_write("make", path, errno, err);
    if (!S_ISDIR(st.st_mode))
        return no_write("make", path, ENOTDIR, err);
    return st.st_uid == geteuid()
               ? PLIM_OK
               : plim_fail(err, PLIM_EIO, 0, "'%.160s' belongs to another user", path);
}

/* Makes the folder, and those on the way to it; those from byte `own` of the path on are plimsoll's. */
static plim_status make_folders(plim_arena *a, plim_str path, size_t own, plim_err *err)
{
    char *p = (char *)(uintptr_t)plim_arena_str(a, path).p;
    if (!p)
        return plim_oom(err);
    for (size_t i = 1; i <= path.n; i++) {
        if (p[i] != '/' && i < path.n)
            continue;
        p[i] = 0;
        int error =
            mkdir(p, 0700) ? errno : 0; /* of one that is there, whatever the system says */
        if (error && !plim_file_is_folder(p))
            return no_write("make", p, error, err);
        if (i > own)
            PLIM_TRY(check_own(p, err));
        p[i] = i < path.n ? '/' : 0;
    }
    return PLIM_OK;
}

/* ---- files ------------------------------------------------------------------------------- */

static bool write_all(int fd, plim_str text)
{
    for (size_t done = 0; done < text.n;) {
        ssize_t n = write(fd, text.p + done, text.n - done);
        if (n < 0 && errno != EINTR)
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return !fsync(fd);
}

/* Writes an open file to its end and closes it. */
static plim_status finish_file(int fd, const char *path, plim_str text, plim_err *err)
{
    bool good = fd >= 0 && write_all(fd, text);
    int error = errno;
    if (fd >= 0 && close(fd) && good) {
        good = false;
        error = errno;
    }
    return good ? PLIM_OK : no_write("write", path, error, err);
}

/* The folder within `into` that a name has; "" for none. */
static plim_str folder_of(plim_str name)
{
    const char *slash = memchr(name.p, '/', name.n);
    return (plim_str){name.p, slash ? (size_t)(slash - name.p) : 0};
}

static plim_status make_folder_of(plim_arena *a, plim_str into, plim_str name, plim_err *err)
{
    plim_str below = folder_of(name), folder = join_path(a, into, below);
    if (!folder.p)
        return plim_oom(err);
    return below.n && mkdir(folder.p, 0700) && errno != EEXIST
               ? no_write("make", folder.p, errno, err)
               : PLIM_OK;
}

static plim_status write_file(plim_arena *a, plim_str into, const plim_hub_file *f,
                              plim_err *err)
{
    plim_str path = join_path(a, into, f->name);
    if (!path.p)
        return plim_oom(err);
    PLIM_TRY(make_folder_of(a, into, f->name, err));
    int fd = open(path.p, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return finish_file(fd, path.p, f->body, err);
}

/* Takes back what write_file has made. */
static void remove_files(plim_arena *a, plim_str from, const plim_hub_file *files, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        plim_str path = join_path(a, from, files[i].name);
        if (path.p)
            unlink(path.p);
    }
    for (uint32_t i = 0; i < n; i++) {
        plim_str folder = join_path(a, from, folder_of(files[i].name));
        if (folder.p && folder_of(files[i].name).n)
            rmdir(folder.p);
    }
    rmdir(from.p);
}

/* ---- a snapshot ---------------------------------------------------------------------------- */

/* Into a folder that is there: of another process, which had the same files, or one from which some are
 * gone.  Those that are there stay: a sandbox has allowed the file, not its name. */
static plim_status move_files(plim_arena *a, plim_str from, plim_str into,
                              const plim_hub_file *files, uint32_t n, plim_err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        plim_str old = join_path(a, from, files[i].name),
                 new = join_path(a, into, files[i].name);
        if (!old.p || !new.p)
            return plim_oom(err);
        PLIM_TRY(make_folder_of(a, into, files[i].name, err));
        if (!plim_file_exists(new.p) && rename(old.p, new.p))
            return no_write("write", new.p, errno, err);
    }
    return PLIM_OK;
}

/* The files under a name of their own, then all at once under that of the snapshot. */
static plim_status write_snapshot(plim_arena *a, plim_str snapshots, plim_str commit,
                                  const plim_hub_file *files, uint32_t n, plim_err *err)
{
    plim_str made = join_path(a, snapshots, plim_str_of(new_name)),
             path = join_path(a, snapshots, commit);
    plim_status st = PLIM_OK;
    if (!made.p || !path.p)
        return plim_oom(err);
    if (!mkdtemp((char *)(uintptr_t)made.p))
        return no_write("make", made.p, errno, err);
    for (uint32_t i = 0; i < n && !st; i++)
        st = write_file(a, made, &files[i], err);
    if (!st && !rename(made.p, path.p))
        return PLIM_OK;
    if (!st)
        st = errno == EEXIST || errno == ENOTEMPTY ? move_files(a, made, path, files, n, err)
                                                   : no_write("make", path.p, errno, err);
    remove_files(a, made, files, n);
    return st;
}

static bool has_text(const char *path, plim_str text)
{
    plim_bytes b;
    if (plim_file_open(&b, path, true, NULL))
        return false;
    bool same = !b.file && plim_str_eq((plim_str){(const char *)b.p, (size_t)b.n}, text);
    plim_file_close(&b);
    return same;
}

/* Gives the file its name, unless another process was here first with the same. */
static plim_status name_file(const char *made, const char *path, plim_str text, plim_err *err)
{
    if (!link(made, path) || has_text(path, text) || !rename(made, path))
        return PLIM_OK;
    return no_write("write", path, errno, err);
}

/* refs/REVISION, whose text is the commit. */
static plim_status write_ref(plim_arena *a, plim_str folder, plim_str revision,
                             plim_str commit, size_t own, plim_err *err)
{
    plim_str path = plim_arena_printf(a, PLIM_STR_FMT "/refs/" PLIM_STR_FMT,
                                      PLIM_STR_ARG(folder), PLIM_STR_ARG(revision));
    size_t n = path.n;
    while (path.p && n && path.p[n - 1] != '/')
        n--;
    const plim_str within = {path.p, n ? n - 1 : 0};
    plim_str made = path.p ? join_path(a, within, plim_str_of(new_name)) : path;
    if (!made.p)
        return plim_oom(err);
    PLIM_TRY(make_folders(a, within, own, err));
    plim_status st = finish_file(mkstemp((char *)(uintptr_t)made.p), made.p, commit, err);
    if (!st)
        st = name_file(made.p, path.p, commit, err);
    unlink(made.p);
    return st;
}

plim_status plim_hub_store(plim_arena *a, const plim_hub_id *id, plim_str commit,
                           const plim_hub_file *files, uint32_t n, plim_err *err)
{
    plim_str cache = plim_hub_own_cache(a);
    if (cache.p && !cache.n)
        return plim_fail(err, PLIM_EIO, 0,
                         "there is no home folder to keep it in: set XDG_CACHE_HOME");
    plim_str folder = cache.p ? plim_hub_folder(a, cache, id) : cache;
    plim_str snapshots = folder.p ? join_path(a, folder, PLIM_STR("snapshots")) : folder;
    if (!snapshots.p)
        return plim_oom(err);
    size_t own = cache.n - plim_hub_host().n - (sizeof "plimsoll/hub/" - 1);
    PLIM_TRY(make_folders(a, snapshots, own, err));
    PLIM_TRY(write_snapshot(a, snapshots, commit, files, n, err));
    return plim_str_eq(id->revision, commit)
               ? PLIM_OK
               : write_ref(a, folder, id->revision, commit, own, err);
}
