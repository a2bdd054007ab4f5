#!/usr/bin/env python3
"""check.py PROGRAM -- models of the Hugging Face hub: what is fetched, what is kept, and what is said when it cannot be.

The hub is a server of this file on the loopback, which HF_ENDPOINT names; each case has a home folder of its own. The server
answers as the hub does (src: huggingface_hub 0.36, utils/_http.py: X-Error-Code, X-Repo-Commit), and as it never should. Exit status
77: there is no libcurl on this machine, and nothing can be fetched.
"""
import contextlib
import http.server
import json
import os
import pathlib
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM = os.path.abspath(sys.argv[1])
DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
CONFIG = (DATA / "llama-tiny/config.json").read_bytes()
COMMIT = "1a2b3c4d5e6f7a8b9c0d1a2b3c4d5e6f7a8b9c0d"
TOKEN = "hf_secretOfTheUser"
bad = 0


def check(what, good, more=""):
    global bad
    if not good:
        bad += 1
        print(f"not so: {what}: {str(more)[-600:]}")


# ---- the hub ------------------------------------------------------------------------------------------


def header_of(tensors):
    """The beginning of a safetensors file, and how long the whole is."""
    text, at = {}, 0
    for name, shape in tensors.items():
        size = 2
        for n in shape:
            size *= n
        text[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(text).encode()
    return struct.pack("<Q", len(text)) + text, at


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers from `pages`: a path to bytes, or to a function that answers."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Authorization"), self.headers.get("Range")))
        page = self.server.pages.get(self.path)
        if callable(page):
            page(self)
        elif page is None:
            self.reply(404, b"Entry not found", {"X-Error-Code": "EntryNotFound"})
        else:
            self.reply(200, page)

    def reply(self, status, body, headers=None, commit=True):
        self.send_response(status)
        if commit:
            self.send_header("X-Repo-Commit", COMMIT)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A client that has heard enough."""


@contextlib.contextmanager
def hub(pages):
    server = Server(("127.0.0.1", 0), Hub)
    server.pages, server.asked = pages, []
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def repository(name="acme/Foo-7b", revision="main", **files):
    """The pages of a model: the first file is asked for by the revision, the others by the commit."""
    files = {"config.json": CONFIG, **{k.replace("__", "/"): v for k, v in files.items()}}
    return {f"/{name}/resolve/{at}/{file}": body for at in {revision, COMMIT} for file, body in files.items() if body is not None}


class User:
    """Somebody with a home folder, who asks."""

    def __init__(self, folder, server=None, **env):
        self.home = pathlib.Path(tempfile.mkdtemp(dir=folder))
        kept = ("PATH", "LD_LIBRARY_PATH", "PLIMSOLL_LIBCURL")
        self.env = {**{k: v for k, v in os.environ.items() if k in kept or k.endswith("SAN_OPTIONS")}, "HOME": str(self.home),
                    "HF_HUB_DOWNLOAD_TIMEOUT": "5", **({"HF_ENDPOINT": server.url} if server else {}), **env}

    def ask(self, *words, **env):
        done = subprocess.run([PROGRAM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=60,
                              stdin=subprocess.DEVNULL, cwd=self.home, env={**self.env, **env})
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def kept(self):
        """The files in plimsoll's cache, without what names the server."""
        cache = self.home / ".cache/plimsoll/hub"
        return sorted("/".join(p.relative_to(cache).parts[1:]) for p in cache.rglob("*") if p.is_file())


def refused(what, answer, status, *says):
    """One line that says all that, and nothing on standard output."""
    got, out, err = answer
    check(f"{what}: exit status {status}", got == status, answer)
    check(f"{what}: one line of error", not out and err.count("\n") == 1 and err.startswith("plimsoll: "), answer)
    for text in says:
        check(f"{what}: says '{text}'", text in err, err)


# ---- what is fetched, and kept ------------------------------------------------------------------------------


def fetched(folder):
    pages = repository(generation_config__json=None, **{"generation_config.json": b"{}"})
    with hub(pages) as server:
        user = User(folder, server)
        first = user.ask("estimate", "acme/Foo-7b", "--json")
        check("an id is answered", first[0] == 0 and not first[2], first)
        origin = json.loads(first[1])["model"]["origin"]
        check("which commit, and from where", origin == f"acme/Foo-7b@{COMMIT}, fetched from {server.url}", origin)
        want = json.loads(user.ask("estimate", DATA / "llama-tiny", "--json")[1])
        for part in ("memory", "phases", "settings"):
            check(f"as the folder: {part}", json.loads(first[1])[part] == want[part])
        check("its files", user.kept() == [f"models--acme--Foo-7b/{name}" for name in (
            "refs/main", f"snapshots/{COMMIT}/config.json", f"snapshots/{COMMIT}/generation_config.json")], user.kept())
        check("the first by its revision, the others by the commit",
              [p.split("/")[4] for p, _, _ in server.asked] == ["main"] + [COMMIT] * (len(server.asked) - 1), server.asked)
        check("no token where there is none", all(token is None for _, token, _ in server.asked), server.asked)
        asked = len(server.asked)
        for command in ("estimate", "fit", "layers", "info", "tape", "compare"):
            again = user.ask(command, "acme/Foo-7b", *(["--gpu", "t4"] if command == "fit" else []))
            check(f"{command}: from the cache", again[0] == 0 and len(server.asked) == asked, again)
        check("in words", f"acme/Foo-7b@{COMMIT}, fetched from" in user.ask("estimate", "acme/Foo-7b", "--width", "300")[1])
        check("info has it as a fact", f"acme/Foo-7b@{COMMIT}" in user.ask("info", "acme/Foo-7b")[1])
    second = user.ask("estimate", "acme/Foo-7b", "--json")
    check("the same bytes without the server", second == first, second)
    check("and in the strictest sandbox", user.ask("estimate", "acme/Foo-7b", "--json", "--sandbox", "always") in
          (first, (4, "", user.ask("info", "mlp", "--sandbox", "always")[2])))
    check("and offline", user.ask("estimate", "acme/Foo-7b", "--json", "--offline") == first)
    folders = [p for p in (user.home / ".cache").rglob("*") if p.is_dir()]
    check("nobody else reads it", all(p.stat().st_mode & 0o77 == 0 for p in folders))


def every_command(folder):
    """Each command that takes a model asks the hub; those that take other files do not."""
    for command, words in (("estimate", []), ("layers", []), ("fit", ["--gpu", "t4"]), ("serve", ["--gpu", "t4", "--context", "128"]),
                           ("info", []), ("tape", []), ("compare", ["mlp"]), ("diff", ["mlp"])):
        with hub(repository()) as server:
            code, out, err = User(folder, server).ask(command, "acme/Foo-7b", *words)
            check(f"{command} fetches", code in (0, 1) and out, err)
    with hub(repository()) as server:
        code, out, err = User(folder, server).ask("gpus", "--for", "acme/Foo-7b", "--gpu", "t4")
        check("gpus --for fetches", code == 0 and "Foo-7b" in out, err)
        code, out, err = User(folder, server).ask("serve", "llama-7b", "--draft", "acme/Foo-7b", "--context", "128")
        check("a draft is fetched", code == 0 and server.asked, err)
        before = len(server.asked)
        for command in ("replay", "oom"):
            User(folder, server).ask(command, "acme/Foo-7b")
        for name in ("gpt2", "openai-community/gpt2", "mlp", "acme/net.onnx", "a/b/c", "acme--x/y"):
            User(folder, server).ask("estimate", name)
        check("nobody is asked for other things", len(server.asked) == before, server.asked[before:])


def revisions(folder):
    other = json.dumps({**json.loads(CONFIG), "num_hidden_layers": 5}).encode()
    pages = {**repository(), "/acme/Foo-7b/resolve/v2.0/config.json":
             lambda h: h.reply(200, other, {"X-Repo-Commit": "f" * 40}, commit=False),
             "/acme/Foo-7b/resolve/refs%2Fpr%2F3/config.json": other,
             "/openai-community/gpt2/resolve/main/config.json": CONFIG,
             f"/acme/Foo-7b/resolve/{'e' * 40}/config.json":
             lambda h: h.reply(200, other, {"X-Repo-Commit": "e" * 40}, commit=False),
             "/acme/Foo-7b/resolve/v9/config.json":
             lambda h: h.reply(404, b"", {"X-Error-Code": "RevisionNotFound"}, commit=False)}
    with hub(pages) as server:
        user = User(folder, server)
        sizes = {at: json.loads(user.ask("estimate", f"acme/Foo-7b{at}", "--json")[1])["model"]["parameters"]
                 for at in ("", "@v2.0", "@main", "@refs/pr/3", "@" + "e" * 40)}
        check("a tag is another model", sizes[""] == sizes["@main"] < sizes["@v2.0"] == sizes["@" + "e" * 40], sizes)
        refused("no such revision", user.ask("info", "acme/Foo-7b@v9"), 2, "has no revision 'v9'")
        built, own = user.ask("info", "openai-community/gpt2"), user.ask("info", "openai-community/gpt2@main")
        check("a built-in name stays built in", "built-in" in built[1] and "Hugging Face config" in own[1], own)
        name = json.loads(user.ask("estimate", "acme/Foo-7b@v2.0", "--json")[1])["model"]["name"]
        check("its name is the model's", name == "Foo-7b", name)
        for at in ("..", "a/../b", ".x", "a//b", "/a", "a b", "a?b", ""):
            before = len(server.asked)
            code, out, _ = user.ask("info", f"acme/Foo-7b@{at}")
            check(f"'@{at}' is no revision", code and not out and len(server.asked) == before, server.asked[before:])
    offline = user.ask("estimate", "acme/Foo-7b@" + "e" * 40, "--json", "--offline")
    check("a commit is found again", offline[0] == 0, offline)


def timm_names(folder):
    with hub(repository("timm/resnet50.a1_in1k")) as server:
        code, _, err = User(folder, server).ask("info", "timm/resnet50.a1_in1k")
        check("a name with a dot", code == 0, err)


def plain_server(folder):
    """A server of files, which knows neither commits nor errors."""
    pages = {"/acme/Foo-7b/resolve/main/config.json": lambda h: h.reply(200, CONFIG, commit=False)}
    with hub(pages) as server:
        user = User(folder, server)
        first = user.ask("estimate", "acme/Foo-7b", "--json")
        check("no commit: the revision", first[0] == 0 and "acme/Foo-7b@main," in first[1], first)
        check("kept", user.ask("estimate", "acme/Foo-7b", "--json", "--offline") == first)


def endpoints(folder):
    """Two hubs with a model of the same id are two models."""
    other = json.dumps({**json.loads(CONFIG), "num_hidden_layers": 5}).encode()
    with hub(repository()) as a, hub(repository(**{"config.json": other})) as b:
        user = User(folder, a)
        sizes = [json.loads(user.ask("estimate", "acme/Foo-7b", "--json", HF_ENDPOINT=url)[1])["model"]["parameters"]
                 for url in (a.url, b.url, a.url + "/")]
        check("each has its own", sizes[0] == sizes[2] < sizes[1], sizes)
        for address in ("ftp://127.0.0.1/", "127.0.0.1", "http://u:p@127.0.0.1", "file:///etc", "https://a b"):
            refused(f"HF_ENDPOINT={address}", User(folder).ask("info", "acme/Foo-7b", HF_ENDPOINT=address), 2, "HF_ENDPOINT")


# ---- weights: what is said about them -----------------------------------------------------------------------


def model_tensors(user):
    rows = json.loads(user.ask("info", DATA / "llama-tiny", "--json", "--tensors")[1])["tensors"]
    return {r["name"]: r["shape"] for r in rows if r["kind"] == "parameters" and not r["same_as"]}


def weights(folder):
    tensors = model_tensors(User(folder))
    head, size = header_of(tensors)

    def whole_file(handler):  # gigabytes, to who does not stop listening
        ranged = handler.headers.get("Range")
        handler.send_response(206 if ranged and handler.server.ranges else 200)
        handler.send_header("Content-Length", str(1 << 40))
        handler.end_headers()
        with contextlib.suppress(OSError):
            handler.wfile.write(head)
            while True:
                handler.wfile.write(bytes(1 << 16))
                handler.server.sent += 1 << 16

    for ranges in (True, False):
        with hub(repository(**{"model.safetensors": whole_file})) as server:
            server.ranges, server.sent = ranges, 0
            user = User(folder, server)
            code, out, err = user.ask("info", "acme/Foo-7b")
            check("the header is enough", code == 0 and server.sent < 64 << 20, (err, server.sent))
            check("by a part", any(r and r.startswith("bytes=0-") for _, _, r in server.asked), server.asked)
            kept = user.home.glob(f".cache/plimsoll/hub/*/*/snapshots/{COMMIT}/model.safetensors.header")
            check("kept, and no more", [p.read_bytes() for p in kept] == [head])
            check("the weights agree", "missing" not in out and "different" not in out and "cannot be read" not in out, out)
    less = {k: v for k, v in tensors.items() if "norm" not in k}
    for what, given, says in (("fewer tensors", less, "parameters missing from"),
                              ("another shape", {**tensors, "lm_head.weight": [1, 1]}, "different shape")):
        with hub(repository(**{"model.safetensors": header_of(given)[0]})) as server:
            code, out, err = User(folder, server).ask("info", "acme/Foo-7b")
            check(what, code == 0 and says in out, (out, err))
    for what, body in (("an absurd header", b"\xff" * 64), ("an empty file", b""), ("half a header", head[:40]), ("no JSON", struct.pack("<Q", 5) + b"hello")):
        with hub(repository(**{"model.safetensors": body})) as server:
            user = User(folder, server)
            check(f"{what}: none is kept", user.ask("info", "acme/Foo-7b")[0] == 0 and "header" not in str(user.kept()), user.kept())
    unknown = json.dumps({"model_type": "of_tomorrow"}).encode()
    with hub(repository(**{"config.json": unknown, "model.safetensors": head})) as server:
        code, out, err = User(folder, server).ask("info", "acme/Foo-7b", "--json")
        refused("which is named by its id", User(folder, server).ask("estimate", "acme/Foo-7b"), 3,
                "plimsoll: 'acme/Foo-7b': model_type 'of_tomorrow' is not supported")
        held = {h["kind"]: h["bytes"] for h in json.loads(out)["holds"]} if not code else {}
        check("a model that is not known: its weights are", held.get("parameters") == size, (out, err))


def indices(folder):
    tensors = model_tensors(User(folder))
    head, size = header_of(tensors)
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = {"metadata": {"total_size": size}, "weight_map": {name: shards[i % 2] for i, name in enumerate(tensors)}}

    def info(index, config=CONFIG):
        with hub(repository(**{"config.json": config, "model.safetensors.index.json": json.dumps(index).encode()})) as server:
            user = User(folder, server)
            code, out, err = user.ask("info", "acme/Foo-7b", "--width", "400")
            check("no weights are asked for", not any(p.endswith(".safetensors") for p, _, _ in server.asked), server.asked)
            check("an index is answered", code == 0, err)
            outside = {str(p) for p in user.home.rglob("*") if ".cache/plimsoll" not in str(p)} - {str(user.home / ".cache")}
            check("nothing lies elsewhere", not outside, outside)
            return out

    out = info(index)
    check("the names agree", not any(word in out for word in ("missing", "unexpected", "says", "cannot")), out)
    fewer = dict(list(index["weight_map"].items())[1:])
    check("a name that is missing", "parameters missing from" in info({**index, "weight_map": fewer}))
    more = {**index["weight_map"], "visual.patch.weight": shards[0]}
    check("a name that is unexpected", "unexpected tensors in" in info({**index, "weight_map": more}))
    check("another size", f"says {size * 2} bytes, the model has {size} for" in info({**index, "metadata": {"total_size": size * 2}}))
    for name in ("../../../../../../tmp/x.safetensors", "/etc/passwd", "..", "a/b.safetensors", "x\0y", ""):
        check(f"'{name}' is no file", "is not the name of a file" in info({**index, "weight_map": {k: name for k in tensors}}))
    unknown = json.dumps({"model_type": "of_tomorrow"}).encode()
    out = info(index, unknown)
    check("a model that is not known: its bytes are", f"{size} bytes" in out and str(len(tensors)) in out, out)


def pipelines(folder):
    index = {"_class_name": "FooPipeline", "_diffusers_version": "0.35", "unet": ["diffusers", "UNet2DConditionModel"],
             "text_encoder": ["transformers", "CLIPTextModel"], "tokenizer": ["transformers", "CLIPTokenizer"],
             "../../../evil": ["diffusers", "X"], "a/b": ["diffusers", "X"], "..": ["diffusers", "X"], ".x": ["diffusers", "X"],
             "safety_checker": [None, None], "requires_safety_checker": True, "/etc": ["diffusers", "X"]}
    files = {"config.json": None, "model_index.json": json.dumps(index).encode(), "unet/config.json": b'{"a": 1}',
             "text_encoder/config.json": CONFIG, "text_encoder/model.safetensors": header_of({"w": [2, 2]})[0],
             "unet/diffusion_pytorch_model.safetensors.index.json": b'{"weight_map": {}}'}
    with hub({f"/acme/Foo-7b/resolve/{at}/{name}": body for at in ("main", COMMIT) for name, body in files.items() if body}) as server:
        user = User(folder, server)
        refused("a pipeline", user.ask("info", "acme/Foo-7b"), 3, "unet/config.json")
        want = ["model_index.json", "text_encoder/config.json", "text_encoder/model.safetensors.header", "unet/config.json",
                "unet/diffusion_pytorch_model.safetensors.index.json"]
        part = next(user.home.glob(f".cache/plimsoll/hub/*/*/snapshots/{COMMIT}/text_encoder"))
        check("one of its parts", user.ask("info", part)[0] == 0)
        have = [name.split(f"{COMMIT}/")[1] for name in user.kept() if COMMIT in name]
        check("the parts of a pipeline", have == want, have)
        check("and no others are asked for", not any("evil" in p or "a/b" in p or "etc" in p for p, _, _ in server.asked), server.asked)


def adapters(folder):
    files = {"config.json": None, "adapter_config.json": (DATA / "lora/adapter_config.json").read_bytes()}
    with hub(repository(**files)) as server:
        user = User(folder, server)
        refused("an adapter", user.ask("estimate", "acme/Foo-7b"), 3, "adapter", "--peft", "/adapter_config.json\n")


# ---- what is refused -----------------------------------------------------------------------------------------


def answering(status, code=None, message=None, body=b"no"):
    headers = {k: v for k, v in (("X-Error-Code", code), ("X-Error-Message", message)) if v}
    return {"/acme/Foo-7b/resolve/main/config.json": lambda h: h.reply(status, body, headers, commit=False)}


def refusals(folder):
    cases = (
        ("gated", 401, "GatedRepo", {}, 4, ("'acme/Foo-7b' is gated", "accept its licence", "HF_TOKEN")),
        ("gated, with a token", 403, "GatedRepo", {"HF_TOKEN": TOKEN}, 4, ("is gated", "the token that was sent has no access")),
        ("no such repository", 401, "RepoNotFound", {}, 4, ("there is no 'acme/Foo-7b'", "private or gated", "HF_TOKEN")),
        ("no such repository, with a token", 404, "RepoNotFound", {"HF_TOKEN": TOKEN}, 2, ("no such repository",)),
        ("a token that has ended", 401, None, {"HF_TOKEN": TOKEN}, 4, ("refuses the token", "HF_TOKEN")),
        ("401 of a proxy", 401, None, {}, 4, ("HF_TOKEN",)),
        ("403 of a proxy", 403, None, {}, 4, ("HF_TOKEN",)),
        ("no file at all", 404, None, {}, 2, ("neither a file nor a built-in model", "no such repository", "config.json")),
        ("too many requests", 429, None, {}, 4, ("429", "try again later")),
        ("a server that is broken", 503, None, {}, 4, ("503", "try again later")),
        ("an odd status", 418, None, {}, 4, ("418",)))
    for what, status, code, env, exit_status, says in cases:
        with hub(answering(status, code)) as server:
            user = User(folder, server, **env)
            refused(what, user.ask("estimate", "acme/Foo-7b"), exit_status, "acme/Foo-7b", *says)
            refused(f"{what}, in JSON", user.ask("estimate", "acme/Foo-7b", "--json"), exit_status, *says)
            check(f"{what}: nothing is kept", not user.kept(), user.kept())
            check(f"{what}: the token stays secret", TOKEN not in str(user.ask("estimate", "acme/Foo-7b")))
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    refused("no network", User(folder, HF_ENDPOINT=url).ask("info", "acme/Foo-7b"), 4, "acme/Foo-7b", "neither a file nor a built-in model", "cannot be reached")
    refused("no such host", User(folder, HF_ENDPOINT="http://hub.invalid").ask("info", "acme/Foo-7b"), 4, "acme/Foo-7b")
    refused("a proxy that is not there", User(folder, http_proxy=url, HF_ENDPOINT="http://hub.invalid").ask("info", "acme/Foo-7b"), 4)
    closed.close()
    for env in ({"HF_HUB_OFFLINE": "1"}, {"HF_HUB_OFFLINE": "True"}, {"TRANSFORMERS_OFFLINE": "yes"},
                {"HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": "ON"}):
        with hub(repository()) as server:
            refused(f"offline, {env}", User(folder, server, **env).ask("info", "acme/Foo-7b"), 2, "offline", "save its config.json")
            check("nobody is asked", not server.asked)
    with hub(repository()) as server:
        refused("--offline", User(folder, server).ask("info", "acme/Foo-7b", "--offline"), 2, "offline")
        check("nobody is asked", not server.asked)
        code, _, err = User(folder, server, HF_HUB_OFFLINE="0").ask("info", "acme/Foo-7b")
        check("HF_HUB_OFFLINE=0 is online", code == 0, err)
        refused("no libcurl", User(folder, server).ask("info", "acme/Foo-7b", PLIMSOLL_LIBCURL="/nowhere/libcurl.so.4"), 4, "libcurl", "install")
    for what, body in (("a page of a proxy", b"<!DOCTYPE html><html>Please log in</html>"), ("nothing", b""), ("a list", b"[]"),
                       ("half of it", CONFIG[:30]), ("more than one", CONFIG + CONFIG), ("binary", b"\0\1\2")):
        with hub(repository(**{"config.json": body})) as server:
            user = User(folder, server)
            refused(what, user.ask("info", "acme/Foo-7b"), 3, "no object of JSON")
            check(f"{what}: nothing is kept", not user.kept(), user.kept())


def gguf(folder):
    names = ["README.md", "Foo-7b-Q4_K_M.gguf", "Foo-7b-Q8_0.gguf", "deep/er.gguf", ".gitattributes"]
    listing = {"sha": COMMIT, "tags": [{"x": []}], "siblings": [{"rfilename": n, "size": 1} for n in names]}
    for what, api, says in (("GGUF only", listing, ("3 GGUF files", "Foo-7b-Q4_K_M.gguf", "plimsoll serve")),
                            ("one GGUF", {"siblings": [{"rfilename": "a.gguf"}]}, ("1 GGUF file (a.gguf)",)),
                            ("many", {"siblings": [{"rfilename": f"{'x' * 60}-{i}.gguf"} for i in range(500)]}, ("500 GGUF files", "plimsoll serve FILE'")),
                            ("neither", {"siblings": [{"rfilename": "README.md"}]}, ("neither config.json nor model_index.json",)),
                            ("odd lists", {"siblings": [1, None, {"rfilename": 3}]}, ("neither config.json",)),
                            ("no list", {"siblings": None}, ("neither config.json",))):
        pages = {f"/api/models/acme/Foo-7b/revision/{at}": json.dumps(api).encode() for at in ("main", COMMIT)}
        with hub({**pages, "/acme/Foo-7b/x": b""}) as server:
            user = User(folder, server)
            refused(what, user.ask("serve", "acme/Foo-7b"), 3, "acme/Foo-7b", *says)
            check(f"{what}: nothing is kept", not user.kept())


# ---- servers that mean no good ----------------------------------------------------------------------------------


def redirections(folder):
    with hub({"/cdn/config.json": CONFIG, "/cdn/evil": lambda h: h.reply(200, CONFIG, {"X-Repo-Commit": "../../../evil"}, commit=False)}) as cdn:
        def to(url):
            return lambda h: h.reply(302, b"", {"Location": url})

        def ask(page, **env):
            with hub({**repository(**{"config.json": page}), "/api/config.json": CONFIG}) as server:
                user = User(folder, server, HF_TOKEN=TOKEN, **env)
                return server, user, user.ask("estimate", "acme/Foo-7b", "--json")

        server, _, answer = ask(to("/api/config.json"))
        check("on the same server", answer[0] == 0, answer)
        check("with the token", all(t == f"Bearer {TOKEN}" for _, t, _ in server.asked), server.asked)
        server, _, answer = ask(to(cdn.url + "/cdn/config.json"))
        check("to another server", answer[0] == 0 and len(cdn.asked) == 1, answer)
        check("without the token", cdn.asked[0][1] is None and server.asked[0][1], cdn.asked)
        check("the commit is the hub's", COMMIT in answer[1], answer)
        cdn.asked.clear()
        _, user, answer = ask(to(cdn.url + "/cdn/evil"))
        check("and not the other server's", answer[0] == 0 and COMMIT in answer[1] and "evil" not in str(user.kept()), answer)
        cdn.pages["/back"] = lambda h: h.reply(302, b"", {"Location": back[0]})
        with hub({**repository(**{"config.json": to(cdn.url + "/back")}), "/api/config.json": CONFIG}) as server:
            back = [server.url + "/api/config.json"]
            answer = User(folder, server, HF_TOKEN=TOKEN).ask("info", "acme/Foo-7b")
            check("and back: no token any more", answer[0] == 0 and
                  [t for p, t, _ in server.asked if p == "/api/config.json"] == [None], server.asked)
        for url in ("ftp://127.0.0.1/x", "file:///etc/passwd", "gopher://127.0.0.1/x"):
            refused(f"to {url}", ask(to(url))[2], 4, "redirected", "https")
        refused("in a circle", ask(to(f"/acme/Foo-7b/resolve/{COMMIT}/config.json"))[2], 4, "redirected more than")
        check("to nowhere", ask(lambda h: h.reply(302, b""))[2][0] == 4)


def proxies(folder):
    with hub({f"http://hub.test{path}": body for path, body in repository().items()}) as proxy:
        user = User(folder, HF_ENDPOINT="http://hub.test")
        code, out, err = user.ask("estimate", "acme/Foo-7b", "--json", http_proxy=proxy.url)
        check("through a proxy", code == 0 and "fetched from http://hub.test" in out, err)
        before = len(proxy.asked)
        user = User(folder, HF_ENDPOINT="http://hub.invalid")
        refused("not through it", user.ask("info", "acme/Foo-7b", http_proxy=proxy.url, no_proxy="hub.invalid"), 4, "cannot be reached")
        check("nor asked", len(proxy.asked) == before)


def certificates(folder):
    """https, with a certificate that nobody has signed."""
    if not shutil.which("openssl"):
        print("left out: https, without openssl to make a certificate")
        return
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert], check=True, stderr=subprocess.DEVNULL)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with hub(repository()) as plain, hub(repository()) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        user = User(folder, HF_ENDPOINT=f"https://localhost:{server.server_port}", HF_TOKEN=TOKEN)
        refused("unknown", user.ask("info", "acme/Foo-7b"), 4, "cannot be reached", "certificate")
        check("gets no token", not server.asked, server.asked)
        code, out, err = user.ask("estimate", "acme/Foo-7b", "--json", CURL_CA_BUNDLE=str(cert))
        check("known", code == 0 and f"fetched from localhost:{server.server_port}" in out, err)
        server.pages["/acme/Foo-7b/resolve/v2/config.json"] = \
            lambda h: h.reply(302, b"", {"Location": plain.url + "/acme/Foo-7b/resolve/main/config.json"})
        refused("to a server without", user.ask("info", "acme/Foo-7b@v2", REQUESTS_CA_BUNDLE=str(cert)), 4, "redirected", "not https")
        check("which is not asked", not plain.asked)


def tokens(folder):
    def sent(env=None, **files):
        with hub(repository()) as server:
            user = User(folder, server)
            for name, text in files.items():
                path = user.home / name.replace("__", "/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            user.ask("info", "acme/Foo-7b", **{k: v.replace("~", str(user.home)) for k, v in (env or {}).items()})
            return server.asked[0][1]

    bearer = f"Bearer {TOKEN}"
    check("HF_TOKEN", sent({"HF_TOKEN": f" {TOKEN}\n"}) == bearer)
    check("the older name", sent({"HUGGING_FACE_HUB_TOKEN": TOKEN}) == bearer)
    check("the file of huggingface_hub", sent({}, **{".cache__huggingface__token": TOKEN + "\n"}) == bearer)
    check("in HF_HOME", sent({"HF_HOME": "~/hf"}, hf__token=TOKEN) == bearer)
    check("HF_TOKEN_PATH", sent({"HF_TOKEN_PATH": "~/t"}, t=TOKEN) == bearer)
    check("not where it is switched off", sent({"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, **{".cache__huggingface__token": TOKEN}) is None)
    for text in ("a\r\nX-Evil: 1", "a b", "", "x" * 5000, "h\u00e4"):
        check(f"no token: {text[:20]!r}", sent({"HF_TOKEN": text}) is None)


def hostile(folder):
    def oversized(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(1 << 40))
        handler.end_headers()
        with contextlib.suppress(OSError):
            handler.wfile.write(b"{")
            while True:
                handler.wfile.write(b" " * (1 << 16))
                handler.server.sent += 1 << 16

    def truncated(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(CONFIG) + 100))
        handler.end_headers()
        handler.wfile.write(CONFIG)
        handler.close_connection = True

    def slow(handler):
        time.sleep(4)

    def dripping(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(CONFIG)))
        handler.end_headers()
        with contextlib.suppress(OSError):
            for c in CONFIG[:8]:
                handler.wfile.write(bytes([c]))
                time.sleep(0.5)

    def ask(page, env=None):
        with hub(repository(**{"config.json": page})) as server:
            server.sent = 0
            user = User(folder, server, HF_HUB_DOWNLOAD_TIMEOUT="1")
            begun = time.monotonic()
            answer = user.ask("info", "acme/Foo-7b", **(env or {}))
            check("nothing is kept", not user.kept(), user.kept())
            check("soon", time.monotonic() - begun < 30)
            return server, answer

    server, answer = ask(oversized)
    refused("a body without an end", answer, 3, "over the limit", "8388608")
    check("is not listened to", server.sent < 64 << 20, server.sent)
    refused("a body that ends too soon", ask(truncated)[1], 4, "broke off", "config.json of 'acme/Foo-7b'")
    refused("a server that does not answer", ask(slow)[1], 4, "no answer within 1 s", "HF_HUB_DOWNLOAD_TIMEOUT")
    refused("a server that drips", ask(dripping)[1], 4, "comes too slowly")
    refused("no memory for it", ask(oversized, {"HF_HUB_DOWNLOAD_TIMEOUT": "5"})[1], 3)
    for commit in ("..", "../../x", "/etc", "a/b", ".hidden", "x" * 200, "a b", "\u00fc"):
        with hub({"/acme/Foo-7b/resolve/main/config.json": lambda h, c=commit: h.reply(200, CONFIG, {"X-Repo-Commit": c.encode().decode("latin-1")},
                                                                                     commit=False)}) as server:
            user = User(folder, server)
            code, out, err = user.ask("info", "acme/Foo-7b")
            check(f"a commit '{commit[:20]}' names no folder", code == 0 and "acme/Foo-7b@main" in out and
                  user.kept() == ["models--acme--Foo-7b/snapshots/main/config.json"], (out, err, user.kept()))
    deep = b'{"model_type": ' + b"[" * 100000 + b"]" * 100000 + b"}"
    with hub(repository(**{"config.json": deep})) as server:
        refused("a deep one", User(folder, server).ask("info", "acme/Foo-7b"), 3)


def unwritable(folder):
    with hub(repository()) as server:
        user = User(folder, server)
        (user.home / ".cache").write_text("a file")
        refused("a file in place of the cache", user.ask("info", "acme/Foo-7b"), 4, "XDG_CACHE_HOME")
        user = User(folder, server)
        elsewhere = User(folder).home
        (user.home / ".cache").mkdir()
        (user.home / ".cache/plimsoll").symlink_to(elsewhere)
        refused("a link in its place", user.ask("info", "acme/Foo-7b"), 4, "plimsoll")
        check("is not followed", not list(elsewhere.iterdir()))
        user = User(folder, server)
        user.env.pop("HOME")
        refused("no home", user.ask("info", "acme/Foo-7b"), 4, "XDG_CACHE_HOME")
        user.env["XDG_CACHE_HOME"] = str(user.home / "deep/er")
        check("one that is named", user.ask("info", "acme/Foo-7b")[0] == 0 and (user.home / "deep/er/plimsoll").is_dir())
        user = User(folder, server)
        broken = user.home / ".cache/plimsoll/hub" / server.url.replace(":", "_").replace("/", "_") / "models--acme--Foo-7b/snapshots" / COMMIT
        broken.mkdir(parents=True)  # as of another program, empty
        (broken.parent.parent / "refs").mkdir()
        (broken.parent.parent / "refs/main").write_text(COMMIT)
        code, out, err = user.ask("info", "acme/Foo-7b")
        check("an empty snapshot", code == 0 and not list(broken.parent.glob(".new*")), (out, err))
        (broken / "config.json").unlink()  # as who cleans up what is old
        (broken / "generation_config.json").write_text("{}")
        check("one without config.json: offline", user.ask("info", "acme/Foo-7b", "--offline")[0] == 3)
        code, out, err = user.ask("info", "acme/Foo-7b")
        check("is made whole", code == 0 and not list(broken.parent.glob(".new*")), (out, err))


def together(folder):
    """Several at once: all are answered, and there is one snapshot."""
    with hub(repository()) as server:
        user = User(folder, server)
        asks = [subprocess.Popen([PROGRAM, "info", "acme/Foo-7b"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=user.env, cwd=user.home)
                for _ in range(8)]
        outs = {p.communicate() for p in asks}
        check("the same answer", len(outs) == 1 and all(p.returncode == 0 for p in asks), [o[-500:] + e for o, e in outs] + [len(outs)])
        left = [p.name for p in (user.home / ".cache").rglob(".new*")]
        check("nothing is left over", not left, left)


# ---- the cache of huggingface_hub ----------------------------------------------------------------------------------


def their_cache(folder):
    def put(user, *files, revision="main", commit="0123abcd"):
        model = user.home / ".cache/huggingface/hub/models--acme--Foo-7b"
        (model / "blobs").mkdir(parents=True, exist_ok=True)
        (model / "refs" / revision).parent.mkdir(parents=True, exist_ok=True)
        (model / "refs" / revision).write_text(commit)
        (model / "snapshots" / commit).mkdir(parents=True, exist_ok=True)
        for i, (name, body) in enumerate(files):
            (model / "blobs" / f"{commit}{i}").write_bytes(body)
            (model / "snapshots" / commit / name).symlink_to(f"../../blobs/{commit}{i}")

    with hub(repository()) as server:
        user = User(folder, server)
        put(user, ("config.json", CONFIG))
        code, out, err = user.ask("estimate", "acme/Foo-7b", "--json")
        check("is looked into first", code == 0 and not server.asked, err)
        origin = json.loads(out)["model"]["origin"]
        check("and named", origin == "acme/Foo-7b@0123abcd, from the cache of huggingface_hub", origin)
        put(user, ("config.json", CONFIG), revision="refs/pr/1", commit="feed")
        check("a revision of it", "@feed, from the cache" in user.ask("estimate", "acme/Foo-7b@refs/pr/1", "--json")[1])
        check("a commit of it", "@feed, from the cache" in user.ask("estimate", "acme/Foo-7b@feed", "--json")[1])
        user = User(folder, server)
        put(user, ("tokenizer.json", b"{}"))
        code, out, err = user.ask("estimate", "acme/Foo-7b", "--json")
        check("one without config.json is not enough", code == 0 and "fetched from" in out, err)
        user = User(folder, server)
        shutil.copytree(DATA / "sharded", user.home / "s")
        put(user, *((p.name, p.read_bytes()) for p in (user.home / "s").iterdir()))
        code, out, err = user.ask("info", "acme/Foo-7b", "--offline")
        check("weights alone, offline", code == 0, err)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with hub(repository()) as server:
            _, _, err = User(folder, server).ask("info", "acme/Foo-7b")
        if "needs libcurl" in err:
            print("skipped: " + err.strip())
            return 77
        for part in (fetched, every_command, revisions, timm_names, plain_server, endpoints, weights, indices, pipelines, adapters,
                     refusals, gguf, redirections, proxies, certificates, tokens, hostile, unwritable, together, their_cache):
            if not sys.argv[2:] or part.__name__ in sys.argv[2:]:
                part(folder)
    print(f"{bad} problems")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
