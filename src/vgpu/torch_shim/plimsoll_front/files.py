"""The files that a run makes besides those that its user names."""

import contextlib
import os


def create(path):
    """A new file in place of what has that name: nothing is written through a link, which somebody
    else may have put into a shared folder."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return open(path, "xb")


def write_whole(path, data):
    """A file that is there as a whole, or not at all."""
    temporary = path + ".new"
    try:
        with create(temporary) as f:
            f.write(data)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):  # it has what is left of a full disk
            os.unlink(temporary)
        raise


def leave_mark(run, name):
    """An empty file next to the reports, from which cli/cmd_run.c knows what became of them."""
    with contextlib.suppress(OSError):  # the run is over
        os.close(os.open(os.path.join(run["report"], name), os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
