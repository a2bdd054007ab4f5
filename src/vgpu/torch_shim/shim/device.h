// device.h -- allocator, streams, device guard and CUDA hooks of the pretend GPU.
#pragma once
#include "running.h"

namespace {

// ---- streams -----------------------------------------------------------------------

thread_local int64_t current_stream = 0;
std::atomic<int64_t> next_stream{0};

Stream stream_of(int64_t id) { return Stream(Stream::UNSAFE, Device(c10::kCUDA, 0), id); }

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
        block = it->second;
        g.blocks.erase(it);
        g.contents.erase(addr);
    }
    plim_vgpu_free(g.device, block, nullptr);
}

struct Allocator final : c10::Allocator {
    c10::DataPtr allocate(size_t n) override
    {
        Device where(c10::kCUDA, 0);
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
            plim_vgpu_malloc(g.device, n, (uint16_t)current_stream, &tag, &block, &addr, &err),
            err);
        if (block == PLIM_VGPU_NONE)
            out_of_memory();
        return hold(block, addr);
    }
    // A block that is somebody's from now on.
    c10::DataPtr hold(uint32_t block, uint64_t addr)
    {
        std::lock_guard<std::mutex> lock(g.mu);
        g.blocks[addr] = block;
        void *p = reinterpret_cast<void *>((uintptr_t)addr);
        return {p, p, &release, Device(c10::kCUDA, 0)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void *, const void *, std::size_t) const override {}
};

Allocator allocator;

// ---- guard and hooks -----------------------------------------------------------------

struct Guard final : c10::impl::DeviceGuardImplInterface {
    static Device one() { return Device(c10::kCUDA, 0); }
    static void only(Device d)
    {
        TORCH_CHECK(d.index() <= 0,
                    "CUDA error: invalid device ordinal: there is one pretend "
                    "GPU, cuda:0, and the script asks for cuda:",
                    (int)d.index());
    }
    DeviceType type() const override { return DeviceType::CUDA; }
    Device exchangeDevice(Device d) const override
    {
        only(d);
        return one();
    }
    Device getDevice() const override { return one(); }
    void setDevice(Device d) const override { only(d); }
    void uncheckedSetDevice(Device) const noexcept override {}
    // noexcept: in older versions these two are
    Stream getStream(Device) const noexcept override { return stream_of(current_stream); }
    Stream getDefaultStream(Device) const override { return stream_of(0); }
    Stream getNewStream(Device, int = 0) const override
    {
        return stream_of(1 + next_stream++ % 32); // src: CUDAStream.cpp, 32 in a pool
    }
    Stream getStreamFromGlobalPool(Device d, bool = false) const override
    {
        return getNewStream(d, 0);
    }
    Stream exchangeStream(Stream s) const noexcept override
    {
        Stream old = stream_of(current_stream);
        current_stream = s.id();
        return old;
    }
    DeviceIndex deviceCount() const noexcept override { return 1; }
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
            plim_vgpu_sync(g.device, (uint16_t)s.id(), nullptr);
    }
    void synchronizeDevice(const DeviceIndex) const override
    {
        if (alive())
            plim_vgpu_sync(g.device, PLIM_VGPU_ALL_STREAMS, nullptr);
    }
    void recordDataPtrOnStream(const c10::DataPtr &p, const Stream &s) const override
    {
        uint32_t block;
        {
            std::lock_guard<std::mutex> lock(g.mu);
            auto it = g.blocks.find((uint64_t)(uintptr_t)p.get_context());
            if (it == g.blocks.end())
                return;
            block = it->second;
        }
        plim_vgpu_record_stream(g.device, block, (uint16_t)s.id(), nullptr);
    }
};
Guard guard;

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
    DeviceIndex current_device() const { return 0; }
    DeviceIndex getCurrentDevice() const { return 0; }
    DeviceIndex deviceCount() const { return 1; }
    void setCurrentDevice(DeviceIndex d) const { Guard::only(Device(c10::kCUDA, d)); }
    DeviceIndex exchangeDevice(DeviceIndex) const { return 0; }
    DeviceIndex maybeExchangeDevice(DeviceIndex) const { return 0; }
    int getNumGPUs() const { return 1; }
    const at::Generator &getDefaultGenerator(DeviceIndex = -1) const
    {
        static at::Generator one = at::detail::createCPUGenerator();
        return one;
    }
    at::Generator getNewGenerator(DeviceIndex = -1) const
    {
        return at::detail::createCPUGenerator();
    }
    at::Allocator *getPinnedMemoryAllocator() const { return c10::GetCPUAllocator(); }
    at::Allocator *getCUDADeviceAllocator() const { return &allocator; }
    bool isPinnedPtr(const void *) const { return false; }
    Device getDeviceFromPtr(void *) const { return Device(c10::kCUDA, 0); }
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
    void deviceSynchronize(DeviceIndex) const { guard.synchronizeDevice(0); }
};

} // namespace
