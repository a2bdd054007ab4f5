#!/usr/bin/env python3
"""history.py PROGRAM LIBRARIES -- `plimsoll top --log` and `--history`, on a machine that does not exist.

The GPU of the scenario `growing` and a process on it grow with each reading, so what the log
must hold is known from the scenario file; the rows are read again with Python's own SQLite.
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

from machines import write_root

HERE = pathlib.Path(__file__).resolve().parent
USED, GROW = 13958643712, 104857600  # of scenarios/growing.txt, as are these
MEMORY = 11811160064
PREDICTED = 6 << 30  # of roots/host.txt


class Machine:
    def __init__(self, program, libraries, folder):
        self.program, self.folder = program, folder
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
        return json.loads(out)


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


def check_bad_files(m):
    folder = pathlib.Path(m.folder)
    (folder / "text.db").write_text("no database\n" * 100)
    (folder / "empty.db").write_bytes(b"")
    for name, id_, version in (("other.db", 7, 1), ("newer.db", 0x506C696D, 2)):
        db = sqlite3.connect(folder / name)
        db.executescript(f"CREATE TABLE t(x); PRAGMA application_id={id_};"
                         f"PRAGMA user_version={version}")
        db.close()
    for name, word in (("text.db", "not a database"), ("other.db", "another program"),
                       ("newer.db", "version 2")):
        before = (folder / name).read_bytes()
        for args in (("--history", name), ("--log", name, "--once")):
            code, out, err = m.run(*args)
            assert code == 3 and not out and word in err and err.count("\n") == 1, (args, err)
        assert (folder / name).read_bytes() == before, name
    code, _, err = m.run("--history", "empty.db")
    assert code == 3 and "is empty" in err, err
    code, _, err = m.run("--history", "none.db")
    assert code == 4 and not (folder / "none.db").exists(), err
    # cut off, and with foreign bytes: an error, or an answer, never a crash
    whole = (folder / "a.db").read_bytes()
    for at in range(0, len(whole), max(len(whole) // 60, 1)):
        (folder / "bad.db").write_bytes(whole[:at])
        assert m.run("--history", "bad.db")[0] in (0, 1, 3, 4), at
        (folder / "bad.db").write_bytes(whole[:at] + b"\xff" * 40 + whole[at + 40:])
        assert m.run("--history", "bad.db")[0] in (0, 1, 3, 4), at
    for args in (("--log", "x.db", "--json"), ("--keep", "1d"), ("--since", "1h"),
                 ("--history", "a.db", "--once"), ("--history", "a.db", "--since", "1"),
                 ("--history", "a.db", "--log", "b.db")):
        assert m.run(*args)[0] == 2, args


def check_killed(m):
    """Two loggers at once, one of which is killed: nothing is lost but what comes after."""
    loggers = [m.start("--log", "two.db", "--interval", "0.1") for _ in range(2)]
    time.sleep(1)
    assert [p.poll() for p in loggers] == [None, None], [p.communicate() for p in loggers]
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


def main():
    program, libraries = (os.path.abspath(x) for x in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        write_root("host", pathlib.Path(folder))
        m = Machine(program, libraries, folder)
        code, _, err = m.run("--history", "none.db")
        if code == 2 and "without SQLite" in err:
            print("SKIP: built without SQLite")
            return 77
        for check in (check_answer, check_filters, check_bad_files, check_killed,
                      check_read_only, check_keep, check_full):
            check(m)
    print("the log says what was read")
    return 0


if __name__ == "__main__":
    sys.exit(main())
