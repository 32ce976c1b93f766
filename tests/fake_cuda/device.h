// What both halves of the fake device share: its number, its events, and where new tensors lie.
#pragma once
#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace fake {

constexpr c10::DeviceType kType = c10::DeviceType::CUDA;
constexpr int kDevices = 2;

c10::DeviceIndex current();
void make_current(c10::DeviceIndex index);
c10::Allocator& memory();
bool is_pinned(const void* data);
at::Generator host_generator(const at::Generator& of_device);
at::Generator default_generator(c10::DeviceIndex index);

// What happened, for whoever counts: launch, view, sync, d2d, and h2d or d2h with "_async" where the host goes on.
// Raises where waiting is forbidden and this is a wait.
void report(const char* kind, const std::string& op, int64_t bytes = 0);

// While one lives, the CPU's own inner calls are not reported.
struct Unreported {
  Unreported();
  ~Unreported();
};

// While one lives, new tensors lie on this device.
struct On {
  explicit On(c10::DeviceIndex index) : before(current()) { make_current(index); }
  ~On() { make_current(before); }
  c10::DeviceIndex before;
};

} // namespace fake
