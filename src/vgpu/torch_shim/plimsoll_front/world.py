"""torch.distributed on a pretend GPU: a process that is one of many, or believes that it is.

Three kinds of worlds:

* one rank, by itself: the group has nobody else in it;
* one rank of N, alone (`--world N --rank R`): the others are not there, and are assumed to hold
  what this one holds;
* N processes (`--rank all`, torchrun): each has a card of its own.  They find one another
  through PyTorch's store, and tensors on the CPU, so objects too, travel by gloo.

In all of them what is on the card does not move (dist/group.cpp).
"""

import ctypes
import datetime
import functools
import json
import os
import sys
import types

from .abi import Render, c_u64
from .build import GROUP, load_library
from .files import write_whole


def local_rank():
    """Each process has a card of its own, which it calls cuda:0; of a machine of several cards it
    has the one that its launcher gives it."""
    if "LOCAL_RANK" in os.environ and int(os.environ.get("PLIMSOLL_RUN_CARDS") or 1) == 1:
        os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"] = "0", "1"


class Stand(type):
    """A class whose instances are made elsewhere, which isinstance() and calls do not see."""

    def __instancecheck__(cls, backend):
        name = getattr(backend, "name", None)
        return callable(name) and name() == "nccl"

    def __call__(cls, *args, **kwargs):
        return cls.make(*args, **kwargs)


class NcclOptions:
    """ProcessGroupNCCL.Options"""

    def __init__(self, is_high_priority_stream=False):
        self.is_high_priority_stream = is_high_priority_stream
        self.config = types.SimpleNamespace()
        self.split_from, self.split_color = None, 0
        self.global_ranks_in_group, self.group_name = [], ""
        self._timeout = datetime.timedelta(minutes=10)


class World:
    def __init__(self, run, story, shim):
        self.run, self.device, self.shim = run, story.device, shim
        self.rank, self.size = 0, 1
        story.before_report.append(self.tell)
        self.library, self.made = None, 0

    def follow(self, torch):
        """Gives torch.distributed the backends of a CUDA build."""
        self.torch = torch
        self.c10d = sys.modules.get("torch.distributed.distributed_c10d")
        if self.c10d is None:
            return  # built without it
        self.c = sys.modules["torch._C._distributed_c10d"]
        c10d = self.c10d
        self.put("ProcessGroupNCCL", Stand("ProcessGroupNCCL", (), {
            "make": staticmethod(self.nccl), "Options": NcclOptions}))
        if self.run["alone"]:  # gloo would look for the others
            self.put("ProcessGroupGloo", Stand("ProcessGroupGloo", (), {
                "make": staticmethod(self.gloo)}))
        self.put("_NCCL_AVAILABLE", True)
        self.put("default_pg_nccl_timeout", datetime.timedelta(minutes=10))
        self.c._DEFAULT_PG_NCCL_TIMEOUT = datetime.timedelta(minutes=10)
        if not hasattr(self.c.Backend, "options"):
            self.c.Backend.options = property(lambda backend: NcclOptions())
        if not hasattr(self.c.Backend, "_set_default_timeout"):  # NCCL's own; nothing waits here
            self.c.Backend._set_default_timeout = lambda backend, timeout: None
        c10d._new_process_group_helper = self.new_group(c10d._new_process_group_helper)
        if self.run["alone"]:
            self.stand_alone()
        else:
            self.keep_objects_on_the_host()

    def put(self, name, value):
        for module in (self.c10d, self.c, sys.modules["torch.distributed"]):
            if module is not self.c or name.startswith("Process"):
                setattr(module, name, value)

    # -- groups

    def load(self):
        root, version = os.path.dirname(self.torch.__file__), str(self.torch.__version__)
        self.library = load_library(self.run, root, version, GROUP)
        self.library.plimsoll_dist_make.argtypes = [ctypes.c_char_p, ctypes.c_bool,
                                                    ctypes.c_bool]
        self.library.plimsoll_dist_make.restype = None

    def group(self, nccl, store, rank, size):
        """A backend for the card; if there are others, its tensors on the CPU reach them."""
        if self.library is None:
            self.load()
        cpu, cuda = self.torch.device("cpu"), self.torch.device("cuda")
        whole = self.c.ProcessGroup(store, rank, size)
        connected = size > 1 and not self.run["alone"]
        if connected:
            gloo = self.c10d.ProcessGroupGloo(self.c.PrefixStore("gloo/", store), rank, size,
                                              timeout=self.c10d.default_pg_timeout)
            whole._register_backend(cpu, self.c.ProcessGroup.BackendType.GLOO, gloo)
        self.made += 1
        key = f"plimsoll {self.made}"
        self.c._register_process_group(key, whole)
        try:
            self.library.plimsoll_dist_make(key.encode(), nccl, connected)
            return whole._get_backend(cuda)
        finally:
            self.c._unregister_process_group(key)

    def nccl(self, store, rank, size, options=None):
        return self.group(True, self.c.PrefixStore("host/", store), rank, size)

    def gloo(self, store, rank, size, timeout=None):
        return self.group(False, store, rank, size)

    def new_group(self, begin):
        """After PyTorch has made a group: each has backends for the CPU and for the card."""
        @functools.wraps(begin)
        def run(group_size, group_rank, global_ranks_in_group, *args, **kwargs):
            kwargs["device_id"] = None  # would split NCCL's communicators, and there are none
            group, store = begin(group_size, group_rank, global_ranks_in_group, *args, **kwargs)
            if not global_ranks_in_group:  # the default group
                self.rank, self.size = group_rank, group_size
            if store is None:
                return group, store  # this rank is not in it
            cpu, cuda, kinds = (self.torch.device("cpu"), self.torch.device("cuda"),
                                self.c.ProcessGroup.BackendType)
            backend = group._get_backend(cuda) if cuda in group._device_types else None
            if isinstance(backend, self.c10d.ProcessGroupNCCL):
                if cpu not in group._device_types:
                    group._register_backend(cpu, kinds.NCCL, backend)  # objects stay on the host
            elif backend is not None and "gloo" in str(backend.name()):
                card = self.group(False, store, group_rank, group_size)
                group._register_backend(cuda, kinds.NCCL, card)
            return group, store
        return run

    def tell(self):
        """The report says which rank it is of, the program which rank is worst."""
        if self.size == 1:
            return
        self.device.call("place", self.rank, self.size)
        if self.library is not None:
            low, high = c_u64(), c_u64()
            self.library.plimsoll_dist_nccl(ctypes.byref(low), ctypes.byref(high))
            self.device.call("nccl", low, high)
        report = json.loads(self.device.report(self.run, Render.JSON))
        if "fullest" in report:  # of several cards
            report = report["cards"][report["fullest"]]
        fits = {"yes": 1, "no": 0}.get(report["cards"][0]["fits"], -1)
        path = os.path.join(self.run["report"], f"{os.getpid()}.rank")
        write_whole(path, f"{self.rank} {report['peak_allocated']} {report['peak_reserved']} {fits}\n".encode())

    # -- one rank of many, alone

    def stand_alone(self):
        handlers = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers

        def meet(url, *args, **kwargs):
            size = int(os.environ["WORLD_SIZE"])
            yield store(size), int(os.environ["RANK"]), size

        store = store_class(self.torch.distributed.Store)
        for scheme in ("env", "tcp", "file"):
            handlers[scheme] = meet
        for name, function in vars(Objects(self)).items():
            self.put(name, functools.wraps(getattr(self.c10d, name))(function))

    # -- many processes

    def keep_objects_on_the_host(self):
        """Pickled objects have values, which tensors on the card do not keep."""
        def hosted(function):
            @functools.wraps(function)
            def run(*args, device=None, **kwargs):
                return function(*args, **kwargs)
            return run
        for name in ("send_object_list", "recv_object_list", "broadcast_object_list"):
            if hasattr(self.c10d, name):
                self.put(name, hosted(getattr(self.c10d, name)))


class Objects:
    """What collectives of objects answer if the other ranks hold what this one holds."""

    def __init__(self, world):
        c10d = world.c10d

        def note(what):
            world.device.call("note", world.shim.plimsoll_shim_line(), what.encode())

        def all_gather_object(object_list, obj, group=None):
            size = c10d.get_world_size(group)
            object_list[:size] = [obj] * max(size, 0)

        def gather_object(obj, object_gather_list=None, *args, group=None, **kwargs):
            if object_gather_list:
                all_gather_object(object_gather_list, obj, group)

        def broadcast_object_list(object_list, *args, **kwargs):
            if None in object_list:
                note("broadcast_object_list kept None: the sending rank does not run")

        def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None,
                                *args, group=None, **kwargs):
            if scatter_object_input_list:
                scatter_object_output_list[0] = scatter_object_input_list[c10d.get_rank(group)]
            else:
                note("scatter_object_list gave nothing: the sending rank does not run")

        def send_object_list(*args, **kwargs):
            pass

        def recv_object_list(object_list, *args, **kwargs):
            note("recv_object_list received nothing: the sending rank does not run "
                 "(--rank all starts it)")
            return 0

        vars(self).update({k: v for k, v in locals().items()
                           if k.endswith(("_object", "_object_list"))})


def store_class(base):
    class Store(base):
        """Where every rank has written what this one has, so that nobody waits."""

        def __init__(self, size):
            super().__init__()
            self.size, self.values = size, {}

        def set(self, key, value):
            self.values[key] = value.encode() if isinstance(value, str) else bytes(value)

        def get(self, key):
            return self.values.get(key, b"")

        def add(self, key, amount):
            number = int(self.values.get(key, b"0")) + amount * self.size
            self.values[key] = str(number).encode()
            return number

        def compare_set(self, key, expected, desired):
            if self.values.get(key, b"") in (b"", expected.encode()):
                self.set(key, desired)
            return self.get(key)

        def wait(self, keys, timeout=None):
            pass

        def check(self, keys):
            return all(key in self.values for key in keys)

        def delete_key(self, key):
            return self.values.pop(key, None) is not None

        def num_keys(self):
            return len(self.values)

        def set_timeout(self, timeout):
            pass
    return Store
