"""Snapshots of the allocator, in PyTorch's own format."""

from .abi import BlockState


def frames(row):
    """The one frame that is known; its function is the op."""
    file, _, line = row.line.decode().rpartition(":")
    return [{"filename": file, "line": int(line), "name": row.op.decode()}] if file else []


def segments(blocks, device):
    out, states = [], ("inactive", "active_allocated", "active_pending_free")
    gap = False  # what is not mapped divides an expandable segment
    for b in blocks:
        if b.state == BlockState.UNMAPPED:
            gap = True
            continue
        if b.first or gap:
            out.append({
                "device": device, "address": b.addr, "total_size": 0, "allocated_size": 0,
                "active_size": 0, "requested_size": 0, "stream": b.stream,
                "segment_type": "small" if b.small else "large", "segment_pool_id": (0, 0),
                "is_expandable": b.expandable, "frames": [], "blocks": []})
        gap = False
        s = out[-1]
        s["total_size"] += b.bytes
        s["allocated_size"] += b.bytes if b.state == BlockState.ALLOCATED else 0
        s["active_size"] += b.bytes if b.state != BlockState.FREE else 0
        s["requested_size"] += b.requested
        s["blocks"].append({"address": b.addr, "size": b.bytes, "requested_size": b.requested,
                            "state": states[b.state], "frames": frames(b)})
    return out


def trace_entry(t, metadata):
    action = t.action.decode()
    return {"action": action, "device_free" if action == "oom" else "addr": t.addr,
            "size": t.bytes, "stream": t.stream, "time_us": t.number, "compile_context": "N/A",
            "user_metadata": metadata, "pool_id": (0, 0), "frames": frames(t)}


def setting(conf, key, default):
    words = dict(pair.split(":", 1) for pair in conf.replace(" ", "").split(",") if ":" in pair)
    return words.get(key, default)


def max_split_size(conf):
    mib = setting(conf, "max_split_size_mb", "")
    return int(mib) << 20 if mib.isdigit() else -1


def allocator_settings(conf):
    return {"PYTORCH_CUDA_ALLOC_CONF": conf, "max_split_size": max_split_size(conf),
            "garbage_collection_threshold": float(
                setting(conf, "garbage_collection_threshold", "0")),
            "expandable_segments": setting(conf, "expandable_segments", "") == "True",
            "pinned_num_register_threads": 1, "release_lock_on_cudamalloc": False,
            "pinned_use_cuda_host_register": False,
            "roundup_power2_divisions": {str(1 << i): 0 for i in range(16)}}
