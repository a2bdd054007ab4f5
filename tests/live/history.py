#!/usr/bin/env python3
"""history.py PROGRAM LIBRARIES [CORPUS] -- `plimsoll top --log` and `--history`, on a machine that does not exist.

The GPU of the scenario `growing` and a process on it grow with each reading, so what the log
must hold is known from the scenario file; the rows are read again with Python's own SQLite.
With CORPUS, tests/fuzz/corpus/history, it writes the files there instead.
"""

import csv
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

from machines import write_root

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))
from rows import Rows  # noqa: E402

USED, GROW = 13958643712, 104857600  # of scenarios/growing.txt, as are these
MEMORY = 11811160064
PREDICTED = 6 << 30  # of roots/host.txt


class Machine:
    def __init__(self, program, libraries, folder):
        self.program, self.folder = program, folder
        self.rows = Rows(unittest.TestCase())
        self.env = dict(os.environ, PLIMSOLL_SCENARIO=str(HERE / "scenarios/growing.txt"),
                        PLIMSOLL_NVML=f"{libraries}/nvml-550.so", PLIMSOLL_ROOT=".",
                        LC_ALL="C", NO_COLOR="1", COLUMNS="100", TZ="UTC")

    def start(self, *args):
        return subprocess.Popen([self.program, "top", *args], cwd=self.folder, env=self.env,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *args):
        process = self.start(*args)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def history(self, *args):
        code, out, err = self.run("--history", *args, "--json")
        assert code == 0, err
        answer = json.loads(out)
        self.rows.walk(answer)
        return answer


def check_answer(m):
    ticks = 6
    code, out, err = m.run("--log", "a.db", "--ticks", str(ticks), "--interval", "0.1")
    assert (code, out, err) == (0, "", ""), (code, out, err)
    answer = m.history("a.db")
    assert answer["schema"] == "plimsoll/top-history/1"
    first, second = answer["devices"]
    db = sqlite3.connect(pathlib.Path(m.folder, "a.db"))
    rows = db.execute("SELECT used, free, time_ms FROM device_memory WHERE device = 1 "
                      "ORDER BY time_ms").fetchall()
    step = rows[1][0] - rows[0][0]
    assert len(rows) == ticks and step % GROW == 0 and step, rows
    assert (rows[0][0] - USED) % GROW == 0
    assert [u for u, _, _ in rows] == [rows[0][0] + i * step for i in range(ticks)]
    assert (first["peak"], first["free_at_peak"], first["peak_ms"]) == rows[-1]
    seconds = (rows[-1][2] - rows[0][2]) / 1000
    assert abs(first["growth_per_s"] - (rows[-1][0] - rows[0][0]) / seconds) < 2
    assert abs(first["full_in_s"] - rows[-1][1] / first["growth_per_s"]) <= 1
    assert second["growth_per_s"] == 0 and second["full_in_s"] is None
    # What did not change was written once.
    assert db.execute("SELECT count(*) FROM device_memory WHERE device = 2").fetchone() == (1,)
    train = answer["processes"][0]
    assert train["pid"] == 4210 and train["user"] == "alice" and train["job"] == "8812"
    assert train["peak"] == train["held"] == db.execute(
        "SELECT max(memory) FROM process_memory JOIN processes ON id = process "
        "WHERE pid = 4210").fetchone()[0]
    assert (train["peak"] - MEMORY) % GROW == 0 and train["peak"] > MEMORY
    assert train["peak_ms"] == answer["last_ms"] and train["first_ms"] == answer["first_ms"]
    assert train["predicted"] == PREDICTED
    assert train["difference"] == train["peak"] - PREDICTED
    # Plots: of a GPU that grows each part is at least the one before.
    used = [u for u in answer["plots"][0]["used"] if u is not None]
    assert used == sorted(used) and used[-1] == first["peak"] and len(used) == 240
    db.close()


def check_filters(m):
    assert {p["user"] for p in m.history("a.db", "--user", "bob")["processes"]} == {"bob"}
    assert {p["pid"] for p in m.history("a.db", "--pid", "4210")["processes"]} == {4210}
    only = m.history("a.db", "--device", "GPU-0b")
    assert [d["gpu"] for d in only["devices"]] == ["1"]
    assert [p["gpu"] for p in only["processes"]] == ["1"]
    whole, late = m.history("a.db"), m.history("a.db", "--since", "0.2s")
    assert late["first_ms"] == whole["last_ms"] - 200 and late["last_ms"] == whole["last_ms"]
    assert late["devices"][1]["peak"] == whole["devices"][1]["peak"]  # it holds from before
    assert m.run("--history", "a.db", "--device", "7")[0] == 1
    # a text of the user is a value, never SQL
    assert m.history("a.db", "--user", "' OR 1=1 --")["processes"] == []
    code, out, _ = m.run("--history", "a.db", "--csv")
    rows = list(csv.DictReader(out.splitlines()))
    assert code == 0 and len(rows) == len(whole["processes"])
    assert [int(r["peak"]) for r in rows] == [p["peak"] for p in whole["processes"]]
    code, out, _ = m.run("--history", "a.db")
    assert code == 0 and "memory, 0 to 40.00 GiB" in out and "\u2588" in out


def write_small(m, name):
    """A log of six readings in pages of 512 bytes, so that there are many pages in few bytes."""
    m.run("--log", name, "--ticks", "6", "--interval", "0.1")
    db = sqlite3.connect(pathlib.Path(m.folder, name))
    db.executescript("PRAGMA journal_mode=DELETE; PRAGMA page_size=512; VACUUM")
    db.close()


def write_foreign(path, script, like_log=True):
    path.unlink(missing_ok=True)
    db = sqlite3.connect(path)
    if like_log:
        db.executescript(f"PRAGMA application_id={0x506C696D}; PRAGMA user_version=1;")
    db.executescript(script)
    db.close()


def refuse(m, name, message, commands=(("--history",), ("--log", "--once"))):
    """Each command says this and nothing else, ends with 3, and leaves the file as it was."""
    before = pathlib.Path(m.folder, name).read_bytes()
    for command, *more in commands:
        code, out, err = m.run(command, name, *more)
        assert (code, out, err) == (3, "", f"plimsoll: {message}\n"), (command, name, code, err)
    assert pathlib.Path(m.folder, name).read_bytes() == before, name


def check_foreign(m):
    """Databases that are no logs, and files that are no databases."""
    folder = pathlib.Path(m.folder)
    log = sqlite3.connect(folder / "a.db")
    tables = {name: sql for name, sql in log.execute("SELECT name, sql FROM sqlite_master "
                                                     "WHERE type = 'table'")}
    log.close()
    assert len(tables) == 5
    (folder / "text.db").write_text("no database\n" * 100)
    refuse(m, "text.db", "'text.db': file is not a database")
    write_foreign(folder / "other.db", "CREATE TABLE t(x); PRAGMA application_id=7", False)
    refuse(m, "other.db", "'other.db' is a database of another program, not a log of 'plimsoll top'")
    write_foreign(folder / "newer.db", "CREATE TABLE t(x); PRAGMA user_version=2")
    refuse(m, "newer.db", "'newer.db' has version 2 of the log, this plimsoll knows version 1")
    for missing in tables:
        write_foreign(folder / "less.db",
                      ";".join(sql for name, sql in tables.items() if name != missing))
        refuse(m, "less.db",
               f"'less.db' has no table '{missing}', which a log of 'plimsoll top' has")
    # A view may be a query without an end, and another column is another table.
    endless = ("CREATE VIEW sessions AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 "
               "FROM n) SELECT x AS id, '' AS host, x AS first_ms, x AS last_ms FROM n")
    for sql in (endless, "CREATE TABLE sessions(id)", tables["sessions"].replace(" host TEXT,", "")):
        write_foreign(folder / "else.db", ";".join([*tables.values(), "DROP TABLE sessions", sql]))
        refuse(m, "else.db", "table 'sessions' of 'else.db' is not that of a log of 'plimsoll top'")
    # Somebody's own tables in the log are not read, and no trigger runs.
    write_small(m, "more.db")
    answer = m.history("more.db")
    db = sqlite3.connect(folder / "more.db")
    db.executescript("CREATE TABLE mine(x); CREATE VIEW theirs AS SELECT * FROM mine; CREATE TRIGGER "
                     "t AFTER INSERT ON device_memory BEGIN INSERT INTO mine VALUES(new.used); END")
    assert m.history("more.db") == answer
    assert m.run("--log", "more.db", "--once")[0] == 0
    assert db.execute("SELECT count(*) FROM mine").fetchone() == (0,)
    assert db.execute("SELECT count(*) FROM sessions").fetchone() == (2,)
    db.close()
    (folder / "empty.db").write_bytes(b"")
    refuse(m, "empty.db", "'empty.db' is empty, not a log of 'plimsoll top'", [("--history",)])
    code, out, err = m.run("--history", "none.db")
    assert (code, out) == (4, "") and "unable to open" in err and not (folder / "none.db").exists()


NOT_A_DATABASE = "'bad.db': file is not a database"
MALFORMED = "'bad.db': database disk image is malformed"


def check_cut_off(m):
    """Cut off at any place a log is refused, with both sizes once they can be known."""
    folder, bad = pathlib.Path(m.folder), pathlib.Path(m.folder, "bad.db")
    write_small(m, "small.db")
    whole = (folder / "small.db").read_bytes()
    for at in [10, 15, 16, 99, 100, 511, *range(512, len(whole), 512), len(whole) - 1]:
        bad.write_bytes(whole[:at])
        refuse(m, "bad.db", NOT_A_DATABASE if at < 17 else MALFORMED if at < 100 else
               f"'bad.db' is cut off: it has {at} bytes of {len(whole)}")
    bad.write_bytes(whole + b"more")  # what comes after is not of the database
    assert m.history("bad.db") == m.history("small.db")


def check_damaged(m):
    """A page of foreign bytes: if it is of a table, that is seen and said."""
    folder, bad = pathlib.Path(m.folder), pathlib.Path(m.folder, "bad.db")
    whole = (folder / "small.db").read_bytes()
    db = sqlite3.connect(folder / "small.db")
    roots = dict(db.execute("SELECT name, rootpage FROM sqlite_master WHERE sql NOT NULL"))
    db.close()
    assert len(roots) == 5 and min(roots.values()) > 1
    for name, page in roots.items():
        at = (page - 1) * 512
        for damage in (b"\xff" * 512, b"\0" * 512, whole[:512]):
            bad.write_bytes(whole[:at] + damage + whole[at + 512:])
            refuse(m, "bad.db", MALFORMED, [("--history",)])
    answers = {0: 0, 3: 0}
    for at in range(0, len(whole), max(len(whole) // 150, 1)):
        bad.write_bytes(whole[:at] + bytes(255 - b for b in whole[at:at + 20]) + whole[at + 20:])
        code, out, err = m.run("--history", "bad.db", "--json")
        assert code in (0, 1, 3) and err.count("\n") == (code == 3), (at, code, err)
        assert not out if code == 3 else json.loads(out), at
        answers[code and 3] += 1
    assert all(answers.values()), answers


def check_circles(m):
    """A table that has its pages many times over: more than 20 ** 8 rows in 200 KB."""
    size, levels = 512, 8
    folder, bad = pathlib.Path(m.folder), pathlib.Path(m.folder, "bad.db")
    write_small(m, "deep.db")
    db = sqlite3.connect(folder / "deep.db")
    db.executemany("INSERT INTO process_memory VALUES(1, ?, 1)", ((i,) for i in range(5000)))
    db.commit()
    root, = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'process_memory'").fetchone()
    db.close()
    data = bytearray((folder / "deep.db").read_bytes())

    def children(page):
        """Where an inner page has the numbers of its children: in its cells, and at 8."""
        at = (page - 1) * size
        assert data[at] == 2, "an inner page of an index"
        n = int.from_bytes(data[at + 3:at + 5], "big")
        return [at + 8] + [at + int.from_bytes(data[at + i:at + i + 2], "big")
                           for i in range(12, 12 + 2 * n, 2)]

    def number(at):
        return int.from_bytes(data[at:at + 4], "big")

    inner = number(children(root)[1])
    leaf = number(children(inner)[1])
    assert len(children(inner)) > 20 and data[(leaf - 1) * size] == 10
    last = len(data) // size
    data += data[(inner - 1) * size:inner * size] * levels
    for page in (root, *range(last + 1, last + levels + 1)):
        below = last + 1 if page == root else page + 1 if page < last + levels else leaf
        for at in children(page):
            data[at:at + 4] = below.to_bytes(4, "big")
    data[28:32] = (len(data) // size).to_bytes(4, "big")
    bad.write_bytes(data)
    refuse(m, "bad.db", "'bad.db' is damaged: its tables have more rows than its size allows",
           [("--history",)])


def varint(n):
    digits = [n & 127]
    while n := n >> 7:
        digits.append(n & 127 | 128)
    return bytes(reversed(digits))


def long_row(pid, size, chain, page):
    """A row of `processes` whose command line, of so many bytes, goes on in pages that others share."""
    types = b"\0\1\4\1\x0f\1\0\0\0" + varint(2 * size + 13) + b"\0\0"
    record = bytes([len(types) + 1]) + types + b"\1" + pid.to_bytes(4, "big") + b"\0C\1"
    whole, least = len(record) + size, (page - 12) * 32 // 255 - 23
    local = least + (whole - least) % (page - 4)
    local = local if local <= page - 35 else least
    return varint(whole) + varint(pid) + (record + b"x" * local)[:local] + chain.to_bytes(4, "big")


def tree_page(kind, head, cells, page, last=b""):
    """A page of a table. src: "Database File Format" of SQLite's documentation, 1.6"""
    at, pointers = page, b""
    for cell in cells:
        at -= len(cell)
        pointers += at.to_bytes(2, "big")
    front = bytes([kind, 0, 0]) + len(cells).to_bytes(2, "big") + at.to_bytes(2, "big") + b"\0" + last + pointers
    assert head + len(front) <= at
    return front + bytes(at - len(front)) + b"".join(reversed(cells))


def write_long(m, name, processes, size, page=512):
    """A log of many processes with one long command line, which the file has once."""
    write_small(m, name)
    path = pathlib.Path(m.folder, name)
    db = sqlite3.connect(path)
    db.execute("DELETE FROM processes")
    db.executemany("INSERT INTO processes VALUES(?1, 1, ?1, 0, 'C', 1, NULL, NULL, NULL, '', NULL, NULL)",
                   ((70000 + i,) for i in range(processes)))
    db.executemany("INSERT INTO process_memory SELECT ?1, last_ms, 1 FROM sessions",
                   ((70000 + i,) for i in range(processes)))
    db.commit()
    root, = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'processes'").fetchone()
    db.close()
    data = bytearray(path.read_bytes())

    def add(contents):
        data.extend(contents)
        return len(data) // page

    chain = 0
    for _ in range(size // (page - 4) + 1):
        chain = add(chain.to_bytes(4, "big") + b"x" * (page - 4))
    level = []
    for first in range(70000, 70000 + processes, 5):
        pids = range(first, min(first + 5, 70000 + processes))
        level.append((add(tree_page(13, 0, [long_row(pid, size, chain, page) for pid in pids], page)), pids[-1]))
    while len(level) > 1:
        groups = [level[i:i + 40] for i in range(0, len(level), 40)]
        level = []
        for group in groups:
            cells = [number.to_bytes(4, "big") + varint(pid) for number, pid in group[:-1]]
            inner = tree_page(5, 0, cells, page, group[-1][0].to_bytes(4, "big"))
            if len(groups) == 1:
                data[(root - 1) * page:root * page] = inner
            else:
                level.append((add(inner), group[-1][1]))
    data[28:32] = (len(data) // page).to_bytes(4, "big")
    path.write_bytes(data)
    return len(data)


def measure(m, *args):
    """Exit status, what was said, and bytes of memory and seconds that it took."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([m.program, "top", *args], cwd=m.folder, env=m.env, stdout=subprocess.DEVNULL,
                                   stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return process.returncode, said.read(), usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime


def check_memory(m):
    """A log that is right and takes a thousand times its size."""
    few = write_long(m, "few.db", 50, 60000)
    assert [len(p["command"]) for p in m.history("few.db")["processes"]] == [60000] * 50, few
    size = write_long(m, "many.db", 20000, 60000)
    limit = (128 << 20) + 64 * size
    assert 20000 * 60000 > 2 * limit, "it must be a bomb"
    code, said, held, _ = measure(m, "--history", "many.db")
    assert (code, said) == (4, f"plimsoll: out of memory for 'many.db', which may take {limit >> 20} MiB "
                               "(--memory-limit)\n"), (code, said)
    assert held < limit, (held, limit)
    code, said, held, _ = measure(m, "--history", "many.db", "--memory-limit", "32MiB")
    assert (code, said) == (4, "plimsoll: out of memory for 'many.db', which may take 32 MiB (--memory-limit)\n")
    assert held < 64 << 20, held
    write_long(m, "longer.db", 50, 1 << 20)
    assert m.run("--history", "longer.db")[::2] == (3, "plimsoll: 'longer.db': string or blob too big\n")


def check_tables(m):
    """SQLite reads the names of all tables first, which took it minutes for these: 5 MB."""
    write_small(m, "tables.db")
    db = sqlite3.connect(pathlib.Path(m.folder, "tables.db"))
    db.execute("PRAGMA writable_schema=ON")
    db.executemany("INSERT INTO sqlite_master VALUES('view', ?1, ?1, 0, 'CREATE VIEW ' || ?1 || ' AS SELECT 1')",
                   ((f"v{i}",) for i in range(100000)))
    db.commit()
    db.close()
    said = "plimsoll: 'tables.db' is not a log of 'plimsoll top': it has too many tables\n"
    for args in ("--history", "tables.db"), ("--log", "tables.db", "--once"):
        code, err, held, seconds = measure(m, *args)
        assert (code, err) == (3, said), (args, code, err)
        assert held < 128 << 20 and seconds < 5, (held, seconds)  # a sanitizer's own is in it, too


def check_pipe(m):
    """A pipe in the place of a log is refused, and not waited for."""
    os.mkfifo(pathlib.Path(m.folder, "pipe.db"))
    for args in ("--history", "pipe.db"), ("--log", "pipe.db", "--once"):
        assert m.run(*args)[::2] == (4, "plimsoll: 'pipe.db' is not a regular file\n"), args


def check_options(m):
    for args in (("--log", "x.db", "--json"), ("--keep", "1d"), ("--since", "1h"),
                 ("--history", "a.db", "--once"), ("--history", "a.db", "--since", "1"),
                 ("--history", "a.db", "--log", "b.db")):
        assert m.run(*args)[0] == 2, args


def check_killed(m):
    """Two loggers at once, and one is killed: nothing is lost but what comes after."""
    loggers = [m.start("--log", "two.db", "--interval", "0.1") for _ in range(2)]
    time.sleep(1)
    ended = [p.communicate(timeout=30) for p in loggers if p.poll() is not None]
    assert not ended, ended
    loggers[0].kill()
    loggers[1].send_signal(signal.SIGTERM)
    for p in loggers:
        p.communicate(timeout=30)
    assert loggers[1].returncode == 0
    answer = m.history("two.db")
    db = sqlite3.connect(pathlib.Path(m.folder, "two.db"))
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert db.execute("SELECT count(*) FROM sessions").fetchone() == (2,)
    assert len(answer["devices"]) == 2 and len(answer["processes"]) == 4
    db.close()


def check_started_at_once(m):
    """Loggers that start at once on no file: one makes the tables, the others find them."""
    for i in range(20):
        loggers = [m.start("--log", f"at_once_{i}.db", "--once") for _ in range(3)]
        for p in loggers:
            assert p.communicate(timeout=60) == ("", "") and p.returncode == 0, p
        db = sqlite3.connect(pathlib.Path(m.folder, f"at_once_{i}.db"))
        assert db.execute("SELECT count(*) FROM sessions").fetchone() == (3,)
        db.close()


def check_read_only(m):
    """The folder of a log that may not be written to."""
    folder = pathlib.Path(m.folder, "still")
    folder.mkdir()
    (folder / "a.db").write_bytes(pathlib.Path(m.folder, "a.db").read_bytes())
    folder.chmod(0o555)
    assert m.history("still/a.db") == m.history("a.db")
    assert [p.name for p in folder.iterdir()] == ["a.db"] or os.geteuid() == 0
    folder.chmod(0o755)


def check_keep(m):
    """What is older than --keep goes, and the last value before stays, as it holds on."""
    m.run("--log", "keep.db", "--ticks", "3", "--interval", "0.1")
    db = sqlite3.connect(pathlib.Path(m.folder, "keep.db"))
    day = 86400 * 1000
    for table, column in (("device_memory", "time_ms"), ("process_memory", "time_ms"),
                          ("sessions", "first_ms"), ("sessions", "last_ms")):
        db.execute(f"UPDATE {table} SET {column} = {column} - {3 * day}")
    db.commit()
    m.run("--log", "keep.db", "--once", "--keep", "7d")
    assert db.execute("SELECT count(*) FROM sessions").fetchone() == (2,)
    m.run("--log", "keep.db", "--once", "--keep", "1d")
    oldest = db.execute("SELECT min(time_ms), max(time_ms) FROM device_memory").fetchone()
    assert oldest[1] - oldest[0] < day, oldest
    assert db.execute("SELECT count(*) FROM sessions").fetchone() == (2,)
    db.close()


def check_full(m):
    """A disk that is full: one sentence, status 4, and what was written can be read."""
    process = subprocess.run(
        ["bash", "-c", 'ulimit -f 150; trap "" XFSZ; exec "$0" "$@"', m.program, "top", "--log", "full.db",
         "--ticks", "200", "--interval", "0.1"], cwd=m.folder, env=m.env, capture_output=True,
        text=True, timeout=60, check=False)
    assert process.returncode == 4 and process.stderr.count("\n") == 1, process
    assert len(m.history("full.db")["devices"]) == 2


def write_corpus(m, folder):
    """The seeds of fuzz_history."""
    write_small(m, "log.db")
    write_foreign(pathlib.Path(m.folder, "foreign.db"),
                  "PRAGMA page_size=512; CREATE TABLE sessions(id)")
    for name in ("log", "foreign"):
        pathlib.Path(folder, name).write_bytes(pathlib.Path(m.folder, f"{name}.db").read_bytes())


def main():
    program, libraries = (os.path.abspath(x) for x in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        write_root("host", pathlib.Path(folder))
        m = Machine(program, libraries, folder)
        code, _, err = m.run("--history", "none.db")
        if code == 2 and "without SQLite" in err:
            print("SKIP: built without SQLite")
            return 77
        if len(sys.argv) > 3:
            write_corpus(m, sys.argv[3])
            return 0
        for check in (check_answer, check_filters, check_options, check_foreign, check_cut_off,
                      check_damaged, check_circles, check_memory, check_tables, check_pipe, check_killed,
                      check_started_at_once, check_read_only, check_keep, check_full):
            check(m)
        assert not m.rows.unseen({"history"}), m.rows.unseen({"history"})
    print("the log says what was read")
    return 0


if __name__ == "__main__":
    sys.exit(main())
