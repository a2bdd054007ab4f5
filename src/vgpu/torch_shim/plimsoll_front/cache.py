"""Where a library is kept that was built: in the user's cache, in a folder that nobody else can write to.

It runs as this user, who may be root.  So each folder on the way is checked, from / down: if only this user and root
can rename what is in it, what was checked is what is loaded later.  The files are checked, too, as the folder may
once have been open to others.

Next to a library is its digest.  It shows that a full disk or a power cut has left the library short, which could end
the process that loads it.  It keeps nobody out: who can write the one can write the other.
"""

import contextlib
import errno
import fcntl
import grp
import hashlib
import os
import pwd
import stat

LINKS_MOST = 40  # src: Linux 6.1, include/linux/namei.h, MAXSYMLINKS
WRITES_ANYBODY = stat.S_IWGRP | stat.S_IWOTH


def refuse(path, why):
    raise PermissionError(errno.EPERM, why, path)


def reason(error):
    """Of an OSError, in words."""
    return (f"'{error.filename}': " if error.filename else "") + (error.strerror or str(error))


# ---- folders -------------------------------------------------------------------------


def homes():
    """This user's home folders, the best first; by XDG's rules a relative one is none."""
    yield os.environ.get("HOME", "")
    with contextlib.suppress(KeyError):
        yield pwd.getpwuid(os.geteuid()).pw_dir


def user_folder():
    """In the user's cache; OSError: there is none, or not one to be trusted."""
    caches = [os.environ.get("XDG_CACHE_HOME", ""), *(os.path.join(home, ".cache") for home in homes())]
    found = next(filter(os.path.isabs, caches), None)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "this user has no home folder")
    return own_folder(os.path.join(found, "plimsoll"))


def own_folder(path):
    """Makes the folder, unless it is there; only this user can write to it.  Its path without symbolic links."""
    if not os.path.isabs(path):
        refuse(path, "it is not an absolute path")
    above, name = os.path.split(path)
    path = os.path.join(trusted_folder(above), name)
    status = look_or_make(path)
    if stat.S_ISLNK(status.st_mode):
        refuse(path, "it is a symbolic link")
    check_folder(path, status)
    if status.st_uid != os.geteuid():
        refuse(path, "it belongs to another user")
    if status.st_mode & WRITES_ANYBODY:
        refuse(path, "others can write to it")
    return path


def trusted_folder(path):
    """As own_folder, but it is enough that only this user and root can rename what is in it."""
    at, links, left = "/", 0, path.split("/")[::-1]
    check_folder(at, os.lstat(at))
    while left:
        name = left.pop()
        if name == "..":
            at = os.path.dirname(at)
        if name in ("", ".", ".."):
            continue
        below = os.path.join(at, name)
        status = look_or_make(below)
        if not stat.S_ISLNK(status.st_mode):
            check_folder(below, status)
            at = below
            continue
        check_owner(below, status)
        links += 1
        if links > LINKS_MOST:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), below)
        target = os.readlink(below)
        at = "/" if os.path.isabs(target) else at
        left += target.split("/")[::-1]
    return at


def look_or_make(path):
    try:
        return os.lstat(path)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):  # another rank was here
            os.mkdir(path, 0o700)
        return os.lstat(path)


def check_owner(path, status):
    if status.st_uid not in (0, os.geteuid()):
        refuse(path, "it belongs to another user")


def check_folder(path, status):
    """Only this user and root can rename what they have in it."""
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    check_owner(path, status)
    open_to = status.st_mode & WRITES_ANYBODY
    if open_to == stat.S_IWGRP and is_private_group(status.st_gid):
        return
    if open_to and not status.st_mode & stat.S_ISVTX:
        refuse(path, "others can write to it")


def is_private_group(gid):
    """Whether it is this user's own: many systems make a group for each user, and let it write to files."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


# ---- files ---------------------------------------------------------------------------


def open_own(path, flags):
    """A regular file of this user's that nobody else can write to.  It is not emptied, and a pipe is not waited for."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
    status = os.fstat(fd)
    if (stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1 and
            not status.st_mode & WRITES_ANYBODY):
        return fd
    os.close(fd)
    refuse(path, "it is not a file of this user's alone")


@contextlib.contextmanager
def lock_folder(folder):
    fd = open_own(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def digest_path(path):
    return path + ".sha256"


def digest_line(path, data):
    """As sha256sum writes and reads it."""
    return f"{hashlib.sha256(data).hexdigest()}  {os.path.basename(path)}\n".encode()


def read_own(path):
    with open(open_own(path, os.O_RDONLY), "rb") as f:
        return f.read()


def is_whole(path):
    """Whether it is there, all of it, and of this user's making."""
    try:
        return read_own(digest_path(path)) == digest_line(path, read_own(path))
    except OSError:
        return False


def keep(made, path):
    """Moves what was made to its place, the digest last: without it the library is built again."""
    os.chmod(made, 0o600)  # whatever the umask was
    with open(made, "rb") as f:
        line = digest_line(path, f.read())
    with open(digest_path(made), "wb") as f:
        f.write(line)
    os.chmod(digest_path(made), 0o600)
    os.replace(made, path)
    os.replace(digest_path(made), digest_path(path))


def forget(path):
    for name in (digest_path(path), path):
        with contextlib.suppress(FileNotFoundError):  # another rank was here
            os.unlink(name)
