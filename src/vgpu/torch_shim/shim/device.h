// device.h -- allocator, streams, device guard and CUDA hooks of the pretend GPU.
#pragma once
#include "generator.h"
#include "running.h"

namespace {

// ---- streams -----------------------------------------------------------------------

thread_local int64_t current_streams[PLIM_VGPU_CARDS]; // of each card
std::atomic<int64_t> next_stream[PLIM_VGPU_CARDS];

int64_t &current_stream() { return current_streams[current_device]; }

// "cuda" is the thread's own device.
DeviceIndex index_of(Device d) { return d.index() < 0 ? current_device : d.index(); }

Stream stream_of(DeviceIndex index, int64_t id)
{
    return Stream(Stream::UNSAFE, Device(c10::kCUDA, index), id);
}

// ---- allocator -----------------------------------------------------------------------

void release(void *context)
{
    if (!context || !alive())
        return;
    uint64_t addr = (uint64_t)(uintptr_t)context;
    uint32_t block;
    {
        std::lock_guard<std::mutex> lock(g.mu);
        auto it = g.blocks.find(addr);
        if (it == g.blocks.end())
            return;
        block = it->second.block;
        g.blocks.erase(it);
        g.contents.erase(addr);
    }
    plim_vgpu_free(g.cards[plim_vgpu_card_at(addr)], block, nullptr);
}

struct Allocator final : c10::Allocator {
    c10::DataPtr allocate(size_t n) override
    {
        Device where(c10::kCUDA, current_device);
        TORCH_CHECK(alive(),
                    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with "
                    "multiprocessing, you must use the 'spawn' start method");
        if (!n)
            return {nullptr, nullptr, &release, where};
        plim_err err = PLIM_ERR_INIT;
        plim_vgpu_tag tag = tag_now();
        uint32_t block;
        uint64_t addr;
        check(
            plim_vgpu_malloc(card(), n, (uint16_t)current_stream(), &tag, &block, &addr, &err),
            err);
        if (block == PLIM_VGPU_NONE)
            out_of_memory();
        return hold(block, addr);
    }
    // A block that is somebody's from now on.
    c10::DataPtr hold(uint32_t block, uint64_t addr)
    {
        std::lock_guard<std::mutex> lock(g.mu);
        g.blocks[addr] = {block, {}};
        void *p = reinterpret_cast<void *>((uintptr_t)addr);
        return {p, p, &release, Device(c10::kCUDA, (DeviceIndex)plim_vgpu_card_at(addr))};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void *, const void *, std::size_t) const override {}
};

Allocator allocator;

// ---- guard and hooks -----------------------------------------------------------------

struct Guard final : c10::impl::DeviceGuardImplInterface {
    static DeviceIndex checked(DeviceIndex index)
    {
        int n = visible_cards();
        TORCH_CHECK(index < n, "CUDA error: invalid device ordinal: there ",
                    n == 1 ? "is one pretend GPU, cuda:0"
                           : "are " + std::to_string(n) + " pretend GPUs",
                    ", and the script asks for cuda:", (int)index,
                    g.machine > index ? " (CUDA_VISIBLE_DEVICES hides it)"
                                      : " ('--gpu NxCARD' simulates N cards)");
        return index;
    }
    DeviceType type() const override { return DeviceType::CUDA; }
    Device exchangeDevice(Device d) const override
    {
        Device before = getDevice();
        setDevice(d);
        return before;
    }
    Device getDevice() const override { return Device(c10::kCUDA, current_device); }
    void setDevice(Device d) const override { current_device = checked(index_of(d)); }
    void uncheckedSetDevice(Device d) const noexcept override
    {
        current_device = index_of(d) < g.machine ? index_of(d) : current_device;
    }
    // noexcept: in older versions these two are
    Stream getStream(Device d) const noexcept override
    {
        return stream_of(index_of(d), current_streams[index_of(d)]);
    }
    Stream getDefaultStream(Device d) const override { return stream_of(index_of(d), 0); }
    Stream getNewStream(Device d, int = 0) const override
    {
        DeviceIndex index = checked(index_of(d));
        return stream_of(index,
                         1 + next_stream[index]++ % 32); // src: CUDAStream.cpp, 32 in a pool
    }
    Stream getStreamFromGlobalPool(Device d, bool = false) const override
    {
        return getNewStream(d, 0);
    }
    Stream exchangeStream(Stream s) const noexcept override
    {
        Stream old = getStream(s.device());
        current_streams[s.device_index()] = s.id();
        return old;
    }
    DeviceIndex deviceCount() const noexcept override { return (DeviceIndex)visible_cards(); }
    void record(void **e, const Stream &, const DeviceIndex,
                const c10::EventFlag) const override
    {
        *e = const_cast<Guard *>(this); // any event is over at once
    }
    void block(void *, const Stream &) const override {}
    bool queryEvent(void *) const override { return true; }
    void destroyEvent(void *, const DeviceIndex) const noexcept override {}
    void synchronizeEvent(void *) const override {}
    double elapsedTime(void *, void *, const DeviceIndex) const override { return 0; }
    bool queryStream(const Stream &) const override { return true; }
    void synchronizeStream(const Stream &s) const override
    {
        if (alive())
            plim_vgpu_sync(g.cards[s.device_index()], (uint16_t)s.id(), nullptr);
    }
    void synchronizeDevice(const DeviceIndex index) const override
    {
        if (alive())
            plim_vgpu_sync(g.cards[index < 0 ? current_device : index], PLIM_VGPU_ALL_STREAMS,
                           nullptr);
    }
    // Streams of another card than the block's are taken as done: only a synchronisation of
    // both would tell.
    void recordDataPtrOnStream(const c10::DataPtr &p, const Stream &s) const override
    {
        uint32_t block;
        if (p.device().index() != s.device_index())
            return;
        {
            std::lock_guard<std::mutex> lock(g.mu);
            auto it = g.blocks.find((uint64_t)(uintptr_t)p.get_context());
            if (it == g.blocks.end())
                return;
            block = it->second.block;
        }
        plim_vgpu_record_stream(g.cards[s.device_index()], block, (uint16_t)s.id(), nullptr);
    }
};
Guard guard;

// The thread's device until it goes; "cuda" and the CPU change nothing.
struct OnDevice {
    DeviceIndex before = current_device;
    explicit OnDevice(Device d)
    {
        if (d.is_cuda())
            current_device = Guard::checked(index_of(d));
    }
    explicit OnDevice(std::optional<Device> d) : OnDevice(d.value_or(c10::kCPU)) {}
    ~OnDevice() { current_device = before; }
    OnDevice(const OnDevice &) = delete;
};

// Not `override`: the list of these functions differs between versions.
struct Hooks : at::CUDAHooksInterface {
    explicit Hooks(at::CUDAHooksArgs) {}
    void init() const {}
    bool hasCUDA() const { return true; }
    bool hasCUDART() const { return true; }
    bool hasMAGMA() const { return false; }
    bool hasCuDNN() const { return true; }
    bool hasCuSOLVER() const { return true; }
    bool hasCuBLASLt() const { return true; }
    bool hasROCM() const { return false; }
    bool isBuilt() const { return true; }
    bool isAvailable() const { return alive(); }
    bool hasPrimaryContext(DeviceIndex) const { return true; }
    DeviceIndex current_device() const { return ::current_device; }
    DeviceIndex getCurrentDevice() const { return ::current_device; }
    DeviceIndex deviceCount() const { return (DeviceIndex)visible_cards(); }
    void setCurrentDevice(DeviceIndex d) const { guard.setDevice(Device(c10::kCUDA, d)); }
    DeviceIndex exchangeDevice(DeviceIndex d) const
    {
        return guard.exchangeDevice(Device(c10::kCUDA, d)).index();
    }
    DeviceIndex maybeExchangeDevice(DeviceIndex d) const { return exchangeDevice(d); }
    int getNumGPUs() const { return visible_cards(); }
    const at::Generator &getDefaultGenerator(DeviceIndex = -1) const
    {
        static at::Generator one = at::make_generator<Generator>(0);
        return one;
    }
    at::Generator getNewGenerator(DeviceIndex d = -1) const
    {
        return at::make_generator<Generator>(d);
    }
    at::Allocator *getPinnedMemoryAllocator() const { return c10::GetCPUAllocator(); }
    at::Allocator *getCUDADeviceAllocator() const { return &allocator; }
    bool isPinnedPtr(const void *) const { return false; }
    Device getDeviceFromPtr(void *p) const
    {
        uint32_t index = plim_vgpu_card_at((uint64_t)(uintptr_t)p);
        TORCH_CHECK(index != PLIM_VGPU_NONE,
                    "The specified pointer resides on host memory and is not registered "
                    "with any CUDA device.");
        return Device(c10::kCUDA, (DeviceIndex)index);
    }
    bool compiledWithCuDNN() const { return true; }
    bool compiledWithMIOpen() const { return false; }
    bool supportsDilatedConvolutionWithCuDNN() const { return true; }
    bool supportsDepthwiseConvolutionWithCuDNN() const { return true; }
    bool supportsBFloat16ConvolutionWithCuDNNv8() const { return g.cc >= 80; }
    bool supportsBFloat16RNNWithCuDNN() const { return g.cc >= 80; }
    long versionCuDNN() const { return 91000; }
    long versionRuntimeCuDNN() const { return 91000; }
    long versionCUDART() const { return 12080; }
    double batchnormMinEpsilonCuDNN() const { return 0; }
    std::string showConfig() const { return "plimsoll: a pretend GPU"; }
    void deviceSynchronize(DeviceIndex d) const { guard.synchronizeDevice(d); }
};

} // namespace
