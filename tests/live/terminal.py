#!/usr/bin/env python3
"""terminal.py PROGRAM LIBRARIES -- `plimsoll top` on a terminal: it draws, follows a change of size,
asks before it ends a process, and leaves the terminal as it was.  Without ncurses in the build it
says how to get it.
"""

import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time

from machines import write_root

HERE = pathlib.Path(__file__).resolve().parent


class Terminal:
    """The program on a pseudo terminal, and what it has written."""

    def __init__(self, program, env, columns, rows):
        self.text = ""
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.execve(program, [program, "top", "--interval", "0.2"], env)
        self.resize(columns, rows)

    def resize(self, columns, rows):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.kill(self.pid, signal.SIGWINCH)

    def press(self, keys):
        self.text = ""
        os.write(self.fd, keys.encode())

    def wait_for(self, what, seconds=20):
        end = time.monotonic() + seconds
        while not re.search(what, self.text):
            assert time.monotonic() < end, f"no {what!r} in {self.text!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode("utf-8", "replace")
                except OSError:  # the program has ended
                    return

    def end(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def main():
    program, libraries = (os.path.abspath(x) for x in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        write_root("host", pathlib.Path(folder))
        env = dict(os.environ, TERM="xterm", LC_ALL="C.UTF-8", PLIMSOLL_ROOT=folder,
                   PLIMSOLL_NVML=f"{libraries}/nvml-550.so",
                   PLIMSOLL_SCENARIO=str(HERE / "scenarios" / "r550.txt"))
        t = Terminal(program, env, 80, 24)
        t.wait_for("help|without ncurses")
        if "without ncurses" in t.text:
            assert "--once" in t.text and t.end() == 2
            print("this build has no terminal view, and says so")
            return 0
        t.text = ""
        t.resize(130, 30)
        t.wait_for("CONTAINER")
        t.press("k")
        t.wait_for("End process 4210")
        t.press("y")
        t.wait_for("none was ended")
        t.press("q")
        t.wait_for(r"\x1b\[\?1049l")
        assert t.end() == 0
    print("drawn, resized, asked, ended")
    return 0


if __name__ == "__main__":
    sys.exit(main())
