// group.cpp -- a process group that answers as NCCL's does and moves nothing.
//
// Compiled by plimsoll_front/build.py when a script first makes a process group.
//
// Memory is what ProcessGroupNCCL makes of it: collectives write to the caller's tensors; an
// operation that is asynchronous holds them until somebody waits for it; the forms that take
// lists of tensors copy through one flat tensor; a barrier is a reduction of one element.
//
// Values, where they are known (on the CPU, and in small tensors on the card), are those of a
// world whose other ranks hold what this one holds.  If there really are other ranks, `host`
// connects them, and tensors on the CPU travel.
#include <mutex>
#include <set>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <plimsoll_vgpu.h>

// Of the shim, which is in the process.
extern "C" void plimsoll_shim_presume(c10::StorageImpl *storage, int category);

using at::Tensor;
using Tensors = std::vector<Tensor>;
using c10::intrusive_ptr;
using c10d::Work;

namespace {

// DistributedDataParallel's reducer asks for one of the device; there is no clock.
struct NoClock : c10d::Timer {
    explicit NoClock(c10::Device) {}
    std::optional<int64_t> measureDifference(Event, Event) override { return std::nullopt; }
};

// On the card: over at once; until wait() it holds what a kernel on another stream would use.
// On the CPU: what travels with others between the start and the end of a batch.
struct Done : Work {
    Tensors results, held;
    std::vector<intrusive_ptr<Work>> travelling;

    Done(Tensors results, Tensors held, std::vector<intrusive_ptr<Work>> travelling = {})
        : results(std::move(results)), held(std::move(held)), travelling(std::move(travelling))
    {
    }
    bool isCompleted() override
    {
        for (const auto &each : travelling)
            if (!each->isCompleted())
                return false;
        return true;
    }
    bool isSuccess() const override { return true; }
    bool wait(std::chrono::milliseconds timeout) override
    {
        for (const auto &each : travelling)
            each->wait(timeout);
        travelling.clear();
        synchronize();
        return true;
    }
    void synchronize() override { held.clear(); }
    Tensors result() override { return results; }
    intrusive_ptr<c10::ivalue::Future> getFuture() override
    {
        auto future = c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()));
        future->markCompleted(c10::IValue(results));
        return future;
    }
};

// Before PyTorch 2.7 options did not say.
template <class Options> auto asynchronous(const Options &o, int) -> decltype(o.asyncOp)
{
    return o.asyncOp;
}
template <class Options> bool asynchronous(const Options &, long) { return true; }

// ---- what NCCL takes from the driver, estimated --------------------------------------

// Of each connection in each channel: 10 MiB to receive (three protocols), 2 MiB to send.
constexpr uint64_t kConnection = 12 << 20;
constexpr uint64_t kFewChannels = 2, kMostChannels = 32, kTreeNeighbours = 3;

struct Buffers {
    uint64_t low = 0, high = 0;
} buffers;
std::mutex buffers_mutex;

// The first operation of its kind in a communicator makes the connections.
struct Connections {
    bool ring = false, tree = false;
    std::set<int> peers;

    static void add(uint64_t low, uint64_t high)
    {
        std::lock_guard<std::mutex> lock(buffers_mutex);
        buffers.low += low * kConnection;
        buffers.high += high * kConnection;
    }
    void use_ring()
    {
        if (!ring)
            add(kFewChannels, kMostChannels);
        ring = true;
    }
    void use_tree() // reductions may take it in place of the ring
    {
        use_ring();
        if (!tree)
            add(0, kMostChannels * kTreeNeighbours);
        tree = true;
    }
    void use_peer(int rank)
    {
        if (peers.insert(rank).second)
            add(1, kMostChannels);
    }
};

// ---- operations ------------------------------------------------------------------------

constexpr size_t kKeep = 64 << 10; // the shim keeps no values of tensors above this size

bool has_values(const Tensor &t) { return !t.is_cuda() || t.nbytes() <= kKeep; }

void assign(const Tensor &to, const Tensor &from)
{
    if (has_values(to) && to.numel() && to.numel() == from.numel())
        to.copy_(from.reshape(to.sizes()));
}

void presume(const Tensors &all, plim_category category)
{
    for (const Tensor &t : all)
        if (t.is_cuda())
            plimsoll_shim_presume(t.storage().unsafeGetStorageImpl(), category);
}

// What is reduced once a gradient is complete has gradients in it: a bucket of
// DistributedDataParallel, say.
void presume_gradients(const Tensors &all)
{
    auto node = torch::autograd::get_current_node();
    if (node && node->name() == "torch::autograd::AccumulateGrad")
        presume(all, PLIM_CAT_GRADIENT);
}

struct Group : c10d::Backend {
    const bool nccl;                   // else gloo, by way of the host
    const intrusive_ptr<Backend> host; // null: there are no other ranks
    const intrusive_ptr<Options> options;
    bool coalescing = false;
    Tensors coalesced;
    std::vector<intrusive_ptr<Work>> travelling;
    Connections connections;
    uint64_t sequence = 0;

    Group(bool nccl, int rank, int size, intrusive_ptr<Backend> host)
        : Backend(rank, size), nccl(nccl), host(std::move(host)),
          options(c10::make_intrusive<Options>("nccl"))
    {
    }

    const std::string getBackendName() const override { return "nccl"; }
    // Not `override`: older versions do not have these.
    intrusive_ptr<Options> getBackendOptions() { return options; }
    bool supportsCoalescing() const { return true; }
    void setTimeout(std::chrono::milliseconds) {}
    void setSequenceNumberForGroup() override {}
    uint64_t getSequenceNumberForGroup() override { return sequence; }
    void waitForPendingWorks() override {}
    void enableCollectivesTiming() override {}
    bool travels(const Tensors &t) const { return host && !t.empty() && t[0].is_cpu(); }
    intrusive_ptr<Work> carry(intrusive_ptr<Work> work)
    {
        if (coalescing)
            travelling.push_back(work);
        return work;
    }

    bool on_card(const Tensors &t) const
    {
        return nccl && size_ > 1 && !t.empty() && t[0].is_cuda();
    }
    void all_peers(const Tensors &t)
    {
        for (int i = 0; i < size_ && on_card(t); i++)
            if (i != rank_)
                connections.use_peer(i);
    }
    // What a collective gives back, and an operation between two ranks:
    template <class O> intrusive_ptr<Work> ring(const O &o, Tensors results, Tensors held)
    {
        if (on_card(held))
            connections.use_ring();
        return done(o, std::move(results), std::move(held));
    }
    intrusive_ptr<Work> pair(int rank, const Tensors &t)
    {
        struct Always {
            bool asyncOp = true;
        };
        if (on_card(t) && rank != rank_)
            connections.use_peer(rank);
        return done(Always(), t, t);
    }
    // What an operation gives back: `held` is all that its kernels would read or write.
    template <class O> intrusive_ptr<Work> done(const O &o, Tensors results, Tensors held)
    {
        sequence++;
        if (!asynchronous(o, 0))
            held.clear(); // its kernels are on the current stream
        else if (coalescing)
            coalesced.insert(coalesced.end(), held.begin(), held.end());
        return c10::make_intrusive<Done>(std::move(results),
                                         coalescing ? Tensors() : std::move(held));
    }
    static Tensors both(Tensors a, const Tensors &b)
    {
        a.insert(a.end(), b.begin(), b.end());
        return a;
    }
    // All ranks together; each has the same.
    void sum(const Tensor &t, const c10d::ReduceOp &op) const
    {
        if (op == c10d::ReduceOp::SUM && has_values(t) && t.scalar_type() != at::kBool)
            t.mul_(size_);
    }
    // A part from each rank, in one write: values of a tensor that is written in parts are lost.
    void repeat(const Tensor &out, const Tensor &part) const
    {
        if (has_values(out) && out.is_contiguous())
            out.view({size_, part.numel()})
                .copy_(part.reshape({1, part.numel()}).expand({size_, part.numel()}));
    }
    // One tensor in place of a list, if all are alike.
    static Tensor flat(const Tensors &t)
    {
        bool alike = !t.empty() && t[0].is_cuda();
        for (const Tensor &each : t)
            alike = alike && each.sizes() == t[0].sizes();
        if (!alike)
            return Tensor();
        std::vector<int64_t> size{(int64_t)t.size()};
        size.insert(size.end(), t[0].sizes().begin(), t[0].sizes().end());
        return at::empty(size, t[0].options());
    }
    static Tensors with(Tensors t, const Tensor &more)
    {
        if (more.defined())
            t.push_back(more);
        return t;
    }

    intrusive_ptr<Work> broadcast(Tensors &t, const c10d::BroadcastOptions &o) override
    {
        return travels(t) ? carry(host->broadcast(t, o)) : ring(o, t, t);
    }
    intrusive_ptr<Work> allreduce(Tensors &t, const c10d::AllreduceOptions &o) override
    {
        if (travels(t))
            return carry(host->allreduce(t, o));
        at::AutoDispatchBelowAutograd below;
        for (const Tensor &each : t)
            sum(each, o.reduceOp);
        presume_gradients(t);
        if (on_card(t))
            connections.use_tree();
        return done(o, t, t);
    }
    intrusive_ptr<Work> allreduce_coalesced(Tensors &t,
                                            const c10d::AllreduceCoalescedOptions &o) override
    {
        return allreduce(t, o);
    }
    intrusive_ptr<Work> reduce(Tensors &t, const c10d::ReduceOptions &o) override
    {
        return travels(t) ? carry(host->reduce(t, o)) : ring(o, t, t);
    }
    intrusive_ptr<Work> allgather(std::vector<Tensors> &out, Tensors &in,
                                  const c10d::AllgatherOptions &o) override
    {
        if (travels(in))
            return carry(host->allgather(out, in, o));
        at::AutoDispatchBelowAutograd below;
        Tensor gathered = flat(out[0]);
        for (const Tensor &each : out[0])
            assign(each, in[0]);
        return ring(o, out[0], with(both(in, out[0]), gathered));
    }
    void gather_into(const Tensor &out, const Tensor &in) const
    {
        if (in.numel() * size_ == out.numel())
            repeat(out, in);
    }
    intrusive_ptr<Work> _allgather_base(Tensor &out, Tensor &in,
                                        const c10d::AllgatherOptions &o) override
    {
        if (travels({in}))
            return carry(host->_allgather_base(out, in, o));
        at::AutoDispatchBelowAutograd below;
        TORCH_CHECK_VALUE(
            in.numel() * size_ == out.numel(),
            "output tensor size must be equal to world_size times input tensor size");
        gather_into(out, in);
        if (in.is_alias_of(out)) // a buffer, which fully_shard copies parameters from
            presume({out}, PLIM_CAT_TEMPORARY);
        return ring(o, {out}, {in, out});
    }
    intrusive_ptr<Work> allgather_coalesced(std::vector<Tensors> &out, Tensors &in,
                                            const c10d::AllgatherOptions &o) override
    {
        if (travels(in))
            return carry(host->allgather_coalesced(out, in, o));
        at::AutoDispatchBelowAutograd below;
        Tensors held = in;
        for (const Tensors &list : out)
            for (size_t i = 0; i < list.size() && i < in.size(); i++) {
                assign(list[i], in[i]);
                held.push_back(list[i]);
            }
        return ring(o, {}, held);
    }
    intrusive_ptr<Work> allgather_into_tensor_coalesced(
        Tensors &out, Tensors &in, const c10d::AllgatherOptions &o) override
    {
        if (travels(in))
            return carry(host->allgather_into_tensor_coalesced(out, in, o));
        at::AutoDispatchBelowAutograd below;
        for (size_t i = 0; i < in.size(); i++)
            gather_into(out[i], in[i]);
        return ring(o, out, both(in, out));
    }
    intrusive_ptr<Work> gather(std::vector<Tensors> &out, Tensors &in,
                               const c10d::GatherOptions &o) override
    {
        if (travels(in))
            return carry(host->gather(out, in, o));
        at::AutoDispatchBelowAutograd below;
        Tensors here = out.empty() ? Tensors() : out[0];
        for (const Tensor &each : here)
            assign(each, in[0]);
        all_peers(in);
        return done(o, here, both(in, here));
    }
    intrusive_ptr<Work> scatter(Tensors &out, std::vector<Tensors> &in,
                                const c10d::ScatterOptions &o) override
    {
        if (travels(out))
            return carry(host->scatter(out, in, o));
        at::AutoDispatchBelowAutograd below;
        Tensors here = in.empty() ? Tensors() : in[0];
        if (!here.empty())
            assign(out[0], here[rank_]);
        all_peers(out);
        return done(o, out, both(out, here));
    }
    intrusive_ptr<Work> reduce_scatter(Tensors &out, std::vector<Tensors> &in,
                                       const c10d::ReduceScatterOptions &o) override
    {
        if (travels(out))
            return carry(host->reduce_scatter(out, in, o));
        at::AutoDispatchBelowAutograd below;
        Tensor scattered = flat(in[0]);
        assign(out[0], in[0][rank_]);
        sum(out[0], o.reduceOp);
        return ring(o, out, with(both(out, in[0]), scattered));
    }
    void reduce_into(const Tensor &out, const Tensor &in, const c10d::ReduceOp &op) const
    {
        if (!has_values(out) || in.numel() != out.numel() * size_)
            return;
        assign(out, in.reshape({size_, out.numel()})[rank_]);
        sum(out, op);
    }
    intrusive_ptr<Work> _reduce_scatter_base(Tensor &out, Tensor &in,
                                             const c10d::ReduceScatterOptions &o) override
    {
        if (travels({in}))
            return carry(host->_reduce_scatter_base(out, in, o));
        at::AutoDispatchBelowAutograd below;
        TORCH_CHECK_VALUE(
            in.numel() == out.numel() * size_,
            "input tensor must be the same size as output size times world size");
        presume_gradients({out, in});
        reduce_into(out, in, o.reduceOp);
        return ring(o, {out}, {in, out});
    }
    intrusive_ptr<Work> reduce_scatter_tensor_coalesced(
        Tensors &out, Tensors &in, const c10d::ReduceScatterOptions &o) override
    {
        if (travels(in))
            return carry(host->reduce_scatter_tensor_coalesced(out, in, o));
        at::AutoDispatchBelowAutograd below;
        for (size_t i = 0; i < in.size(); i++)
            reduce_into(out[i], in[i], o.reduceOp);
        return ring(o, out, both(in, out));
    }
    // Every rank sends to this one what this one sends to itself.
    intrusive_ptr<Work> alltoall_base(Tensor &out, Tensor &in, std::vector<int64_t> &to,
                                      std::vector<int64_t> &from,
                                      const c10d::AllToAllOptions &o) override
    {
        if (travels({in}))
            return carry(host->alltoall_base(out, in, to, from, o));
        at::AutoDispatchBelowAutograd below;
        c10d::checkSplitSizes(from, in, size_);
        c10d::checkSplitSizes(to, out, size_);
        if (to.empty() && from.empty() && in.numel() == out.numel() && in.numel())
            repeat(out, in.reshape({size_, in.numel() / size_})[rank_]);
        all_peers({in});
        return done(o, {out}, {in, out});
    }
    intrusive_ptr<Work> alltoall(Tensors &out, Tensors &in,
                                 const c10d::AllToAllOptions &o) override
    {
        if (travels(in))
            return carry(host->alltoall(out, in, o));
        at::AutoDispatchBelowAutograd below;
        for (const Tensor &each : out)
            assign(each, in[rank_]);
        all_peers(in);
        return done(o, out, both(in, out));
    }

    intrusive_ptr<Work> send(Tensors &t, int rank, int tag) override
    {
        return travels(t) ? carry(host->send(t, rank, tag)) : pair(rank, t);
    }
    intrusive_ptr<Work> recv(Tensors &t, int rank, int tag) override
    {
        return travels(t) ? carry(host->recv(t, rank, tag)) : pair(rank, t);
    }
    intrusive_ptr<Work> recvAnysource(Tensors &t, int tag) override
    {
        return travels(t) ? carry(host->recvAnysource(t, tag)) : pair(rank_, t);
    }
    void startCoalescing() override { coalescing = true; }
    intrusive_ptr<Work> endCoalescing() override
    {
        coalescing = false;
        return c10::make_intrusive<Done>(Tensors(), std::move(coalesced),
                                         std::move(travelling));
    }
    intrusive_ptr<Work> barrier(const c10d::BarrierOptions &o) override
    {
        if (nccl) { // a reduction of one element
            Tensor one = at::empty({1}, at::TensorOptions(at::kFloat).device(at::kCUDA));
            if (on_card({one}))
                connections.use_tree();
        }
        return host ? host->barrier(o) : done(o, {}, {});
    }
    void monitoredBarrier(const c10d::BarrierOptions &o, bool all) override
    {
        if (host)
            host->monitoredBarrier(o, all);
    }
};

} // namespace

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kCUDA, NoClock)
}

extern "C" __attribute__((visibility("default"))) void plimsoll_dist_nccl(uint64_t *low,
                                                                          uint64_t *high)
{
    std::lock_guard<std::mutex> lock(buffers_mutex);
    *low = buffers.low;
    *high = buffers.high;
}

// Puts a group for the card into the process group that is registered as `group`; what that
// has for the CPU, if anything, becomes its `host`.  So that no header of Python is needed,
// Python hands over the one and takes the other through PyTorch's registry of groups.
extern "C" __attribute__((visibility("default"))) void plimsoll_dist_make(const char *group,
                                                                          bool nccl,
                                                                          bool connected)
{
    auto pg = c10d::resolve_process_group(group);
    intrusive_ptr<c10d::Backend> host;
    if (connected)
        host = pg->getBackend(c10::kCPU);
    pg->setBackend(c10::kCUDA, c10d::ProcessGroup::BackendType::NCCL,
                   c10::make_intrusive<Group>(nccl, pg->getRank(), pg->getSize(), host));
}
