// "cuda:0" and "cuda:1" of a CPU build: memory of the host, streams in which everything has happened already, random
// numbers of the CPU's generator.
#include "device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

using c10::Device;
using c10::DeviceIndex;
using c10::DispatchKey;
using c10::Stream;

// ------------------------------------------------------------------------------------------------------------ events
using Listener = int (*)(const char* kind, const char* op, int64_t bytes);

namespace {
Listener listener = nullptr;
thread_local int unreported = 0;
thread_local DeviceIndex current_index = 0;
} // namespace

fake::Unreported::Unreported() { ++unreported; }
fake::Unreported::~Unreported() { --unreported; }

void fake::report(const char* kind, const std::string& op, int64_t bytes) {
  if (!listener || unreported) return;
  TORCH_CHECK(listener(kind, op.c_str(), bytes) == 0, "fake CUDA: the host would wait for the device in ", op);
}

DeviceIndex fake::current() { return current_index; }
void fake::make_current(DeviceIndex index) {
  if (index >= 0) current_index = index;
}

// ------------------------------------------------------------------------------------------------------------ memory
namespace {
constexpr size_t kAligned = 64;
std::atomic<int64_t> allocated[fake::kDevices], peak[fake::kDevices];

struct Header { // stands before what is given out
  size_t bytes;
  int device;
};

void* aligned(size_t bytes) {
  void* data = nullptr;
  TORCH_CHECK(posix_memalign(&data, kAligned, std::max(bytes, kAligned)) == 0, "fake CUDA: out of memory");
  return data;
}

struct DeviceMemory final : c10::Allocator {
  static void free(void* data) {
    if (!data) return;
    auto* raw = static_cast<char*>(data) - kAligned;
    auto* header = reinterpret_cast<Header*>(raw);
    allocated[header->device] -= header->bytes;
    std::free(raw);
  }
  c10::DataPtr allocate(size_t bytes) override {
    const int device = current_index;
    if (!bytes) return {nullptr, nullptr, &free, Device(fake::kType, device)};
    auto* raw = static_cast<char*>(aligned(bytes + kAligned));
    *reinterpret_cast<Header*>(raw) = {bytes, device};
    auto* data = raw + kAligned;
    std::memset(data, 0xAB, bytes); // what nobody wrote is not zero
    const int64_t now = allocated[device] += bytes;
    if (now > peak[device]) peak[device] = now;
    return {data, data, &free, Device(fake::kType, device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
} device_memory;

struct PinnedMemory final : c10::Allocator {
  static inline std::mutex mutex;
  static inline std::map<const char*, size_t> sizes;
  static void free(void* data) {
    std::lock_guard<std::mutex> lock(mutex);
    sizes.erase(static_cast<const char*>(data));
    std::free(data);
  }
  static bool holds(const void* data) {
    std::lock_guard<std::mutex> lock(mutex);
    const auto* place = static_cast<const char*>(data);
    auto behind = sizes.upper_bound(place);
    return behind != sizes.begin() && (--behind, place < behind->first + behind->second);
  }
  c10::DataPtr allocate(size_t bytes) override {
    void* data = aligned(bytes);
    std::lock_guard<std::mutex> lock(mutex);
    sizes[static_cast<const char*>(data)] = bytes;
    return {data, data, &free, Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
} pinned_memory;
} // namespace

c10::Allocator& fake::memory() { return device_memory; }
bool fake::is_pinned(const void* data) { return PinnedMemory::holds(data); }

// ---------------------------------------------------------------------------------------- devices, streams, generators
namespace {
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return fake::kType; }
  DeviceIndex deviceCount() const noexcept override { return fake::kDevices; }
  Device getDevice() const override { return Device(fake::kType, current_index); }
  void uncheckedSetDevice(Device device) const noexcept override { fake::make_current(device.index()); }
  void setDevice(Device device) const override {
    TORCH_CHECK(device.index() < fake::kDevices, "CUDA error: invalid device ordinal");
    fake::make_current(device.index());
  }
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    setDevice(device);
    return before;
  }
  Stream getStream(Device device) const override { return Stream(Stream::DEFAULT, device); }
  Stream getDefaultStream(Device device) const override { return getStream(device); }
  Stream getStreamFromGlobalPool(Device device, bool) const override { return getStream(device); }
  Stream getNewStream(Device device, int) const override { return getStream(device); }
  Stream exchangeStream(Stream stream) const override { return stream; }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override { fake::report("sync", "synchronizeStream"); }
  void synchronizeDevice(const DeviceIndex) const override { fake::report("sync", "synchronizeDevice"); }
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
} const guard;
const c10::impl::DeviceGuardImplRegistrar guard_registrar(fake::kType, &guard);

struct Generator final : c10::GeneratorImpl {
  Generator(DeviceIndex index, at::Generator host)
      : GeneratorImpl(Device(fake::kType, index), c10::DispatchKeySet(DispatchKey::CUDA)), host(std::move(host)) {}
  void set_current_seed(uint64_t seed) override { host.set_current_seed(seed); }
  uint64_t current_seed() const override { return host.current_seed(); }
  uint64_t seed() override { return host.seed(); }
  void set_offset(uint64_t) override {}
  uint64_t get_offset() const override { return 0; }
  void set_state(const c10::TensorImpl& state) override { host.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return host.unsafeGetGeneratorImpl()->get_state(); }
  Generator* clone_impl() const override { return new Generator(device_.index(), host.clone()); }
  at::Generator host;
};

at::Generator new_generator(DeviceIndex index) {
  return at::make_generator<Generator>(index < 0 ? current_index : index, at::detail::createCPUGenerator());
}

const at::Generator& default_of(DeviceIndex index) {
  static const std::vector<at::Generator> generators = {new_generator(0), new_generator(1)};
  return generators[index < 0 ? current_index : index];
}

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return fake::kDevices; }
  int getNumGPUs() const override { return fake::kDevices; }
  DeviceIndex current_device() const override { return current_index; }
  DeviceIndex getCurrentDevice() const override { return current_index; }
  void setCurrentDevice(DeviceIndex index) const override { guard.setDevice(Device(fake::kType, index)); }
  DeviceIndex exchangeDevice(DeviceIndex index) const override {
    return guard.exchangeDevice(Device(fake::kType, index)).index();
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex index) const override { return exchangeDevice(index); }
  bool isPinnedPtr(const void* data) const override { return fake::is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  c10::Allocator* getCUDADeviceAllocator() const override { return &device_memory; }
  Device getDeviceFromPtr(void*) const override { return Device(fake::kType, 0); }
  const at::Generator& getDefaultGenerator(DeviceIndex index) const override { return default_of(index); }
  at::Generator getNewGenerator(DeviceIndex index) const override { return new_generator(index); }
  void deviceSynchronize(DeviceIndex) const override { fake::report("sync", "deviceSynchronize"); }
};
using at::CUDAHooksArgs;
using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", Hooks)

const bool registered = (c10::SetAllocator(fake::kType, &device_memory, 100), true);
} // namespace

at::Generator fake::host_generator(const at::Generator& of_device) {
  return static_cast<Generator*>(of_device.unsafeGetGeneratorImpl())->host;
}
at::Generator fake::default_generator(DeviceIndex index) { return default_of(index); }

// --------------------------------------------------------------------------------------------------- what Python calls
extern "C" {
void fake_listen(Listener f) { listener = f; }
int fake_device() { return current_index; }
void fake_set_device(int index) { fake::make_current(index); }
int fake_count() { return fake::kDevices; }
void fake_seed(int index, uint64_t seed) { fake::host_generator(default_of(index)).set_current_seed(seed); }
int64_t fake_allocated(int index) { return allocated[index]; }
int64_t fake_peak(int index) { return peak[index]; }
void fake_reset_peak(int index) { peak[index] = allocated[index].load(); }
}
