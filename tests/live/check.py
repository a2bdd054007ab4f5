#!/usr/bin/env python3
"""check.py PROGRAM LIBRARIES [--update] -- `plimsoll top` on machines that do not exist.

A scenario (scenarios/NAME.txt) is what nvml_double.c says; its head names the generation of the
driver, which is a library LIBRARIES/nvml-GENERATION.so, and the root: roots/NAME.txt has the
files below /proc, /sys and /etc.  What top prints as a table, as JSON and as metrics is compared
with expected/NAME.txt, which --update writes: then read the diff.

For every scenario the JSON of gpustat has the keys that gpustat has, and the metrics are parsed
by the Python client of Prometheus, if that is installed, as Prometheus and as OpenMetrics.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from machines import write_root

HERE = pathlib.Path(__file__).resolve().parent


def run(program, env, *args):
    done = subprocess.run([program, "top", *args], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=60, check=False)
    return done.returncode, done.stdout.decode("utf-8")


def check_json(name, text):
    """Numbers are bytes or null; nothing is -1 in disguise."""
    answer = json.loads(text)
    assert answer["schema"] == "plimsoll/top/1", name
    for number in re.findall(r"[:,\[](-?\d{15,})", text):
        assert abs(int(number)) < 2**60, f"{name}: {number}"
    for device in answer["devices"]:
        memory = device["memory"]
        if None not in (memory["total"], memory["used"], memory["free"]):
            assert memory["used"] + memory["free"] <= memory["total"], name
        for process in device["processes"]:
            assert process["memory"] is None or process["memory"] == process["peak"], name
    return answer


def check_gpustat(name, text, answer):
    stat = json.loads(text)
    assert list(stat) == ["hostname", "driver_version", "query_time", "gpus"], name
    whole = [d for d in answer["devices"] if d["mig"] is None]
    assert len(stat["gpus"]) == len(whole), name
    for gpu, device in zip(stat["gpus"], whole):
        total = device["memory"]["total"]
        assert gpu["memory.total"] == (None if total is None else total >> 20), name
        assert gpu["uuid"] == device["uuid"] and gpu["name"] == device["name"], name


def check_metrics(name, text):
    assert text.endswith("# EOF\n"), name
    try:
        from prometheus_client import parser
        from prometheus_client.openmetrics import parser as open_parser
    except ImportError:
        return
    families = [list(p.text_string_to_metric_families(text)) for p in (parser, open_parser)]
    for one in families:
        assert all(f.type == "gauge" and f.samples for f in one), name
    samples = [[(s.name, s.labels, s.value) for f in one for s in f.samples] for one in families]
    assert samples[0] == samples[1], name


def check_scenario(path, program, libraries, update):
    text = path.read_text()
    library = re.search(r"^# library (\S+)", text, re.M).group(1)
    root = re.search(r"^# root (\S+)", text, re.M).group(1)
    with tempfile.TemporaryDirectory() as folder:
        write_root(root, pathlib.Path(folder))
        os.chdir(folder)  # names that are the same everywhere
        if library != "none":
            os.symlink(f"{libraries}/nvml-{library}.so", "nvml.so")
        env = dict(os.environ, PLIMSOLL_SCENARIO=str(path), PLIMSOLL_ROOT=".", LC_ALL="C",
                   NO_COLOR="1", COLUMNS="100", TZ="UTC", PLIMSOLL_NVML="./nvml.so")
        code, table = run(program, env, "--once")
        code_json, found = run(program, env, "--json")
        _, csv = run(program, env, "--csv")
        _, stat = run(program, env, "--json=gpustat")
        metrics = pathlib.Path(folder, "metrics.prom")
        run(program, env, "--once", "--prometheus", str(metrics))
        assert sorted(p.name for p in metrics.parent.glob("metrics*")) == ["metrics.prom"], path
        answer = check_json(path.name, found)
        assert code == code_json == (0 if answer["devices"] else 1), (path.name, code, code_json)
        check_gpustat(path.name, stat, answer)
        check_metrics(path.name, metrics.read_text())
        answer["time_ms"] = 0
        got = (f"exit {code}\n{table}\n{json.dumps(answer, indent=1)}\n\n{csv}\n"
               f"{metrics.read_text()}")
        os.chdir(HERE)
    expected = HERE / "expected" / path.name
    if update:
        expected.parent.mkdir(exist_ok=True)
        expected.write_text(got)
    elif not expected.exists() or expected.read_text() != got:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as other:
            other.write(got)
            other.flush()
            subprocess.run(["diff", "-u", str(expected), other.name], check=False)
        return 1
    return 0


def main():
    program, libraries = (os.path.abspath(x) for x in sys.argv[1:3])
    paths = sorted((HERE / "scenarios").glob("*.txt"))
    failed = sum(check_scenario(p, program, libraries, "--update" in sys.argv) for p in paths)
    print(f"{len(paths)} machines, {failed} differ")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
