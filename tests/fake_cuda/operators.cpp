// Every operator of "cuda" is the CPU's on the same memory, so that results are the CPU's bit for bit. What a device
// refuses is refused: operands of several devices, a generator of another. What a CUDA build waits for is reported.
#include "device.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <functional>
#include <set>
#include <utility>
#include <vector>

namespace {
using at::IntArrayRef;
using at::Tensor;
using c10::Device;
using c10::DispatchKey;
using c10::IValue;
using fake::report;
template <class T>
using Maybe = std::optional<T>;

bool is_fake(const Tensor& t) { return t.defined() && t.device().type() == fake::kType; }

// ------------------------------------------------------------------------------------------------- making and moving
Tensor empty(
    IntArrayRef size, Maybe<at::ScalarType> dtype, Maybe<at::Layout>, Maybe<Device> device, Maybe<bool>,
    Maybe<at::MemoryFormat> format) {
  fake::On here(device ? device->index() : -1);
  const c10::DispatchKeySet keys(DispatchKey::CUDA);
  return at::detail::empty_generic(size, &fake::memory(), keys, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(
    IntArrayRef size, IntArrayRef stride, Maybe<at::ScalarType> dtype, Maybe<at::Layout>, Maybe<Device> device,
    Maybe<bool>) {
  fake::On here(device ? device->index() : -1);
  const c10::DispatchKeySet keys(DispatchKey::CUDA);
  return at::detail::empty_strided_generic(size, stride, &fake::memory(), keys, c10::dtype_or_default(dtype));
}

Tensor on_host(const Tensor& t) { // the same memory, as the CPU's kernels want it
  if (!is_fake(t)) return t;
  const auto options = at::TensorOptions().dtype(t.dtype()).device(c10::DeviceType::CPU);
  auto host = t.numel() ? at::from_blob(t.data_ptr(), t.sizes(), t.strides(), options)
                        : at::empty_strided(t.sizes(), t.strides(), options);
  if (t.is_conj()) host._set_conj(true);
  if (t.is_neg()) host._set_neg(true);
  return host;
}

Tensor on_device(const Tensor& host, Device device) {
  if (!host.defined() || is_fake(host)) return host;
  auto copy = empty_strided(host.sizes(), host.strides(), host.scalar_type(), {}, device, {});
  on_host(copy).copy_(host);
  return copy;
}

const char* copy_kind(const Tensor& to, const Tensor& from, bool non_blocking) {
  if (is_fake(to) && is_fake(from)) return "d2d";
  if (is_fake(to)) return non_blocking && fake::is_pinned(from.data_ptr()) ? "h2d_async" : "h2d"; // else CUDA may wait
  return non_blocking && fake::is_pinned(to.data_ptr()) ? "d2h_async" : "d2h";
}

Tensor& copy_(Tensor& self, const Tensor& from, bool non_blocking) {
  if (from.numel()) report(copy_kind(self, from, non_blocking), "copy_", from.nbytes());
  fake::Unreported inner;
  on_host(self).copy_(on_host(from).expand(self.sizes()));
  return self;
}

at::Scalar read_scalar(const Tensor& self) {
  report("sync", "_local_scalar_dense");
  fake::Unreported inner;
  return at::_local_scalar_dense(on_host(self));
}

const Tensor& resize_(const Tensor& self, IntArrayRef size, Maybe<at::MemoryFormat> format) {
  fake::On here(self.device().index());
  return at::native::resize_(self, size, format);
}

Tensor& set_storage(Tensor& self, c10::Storage source, int64_t offset, IntArrayRef size, IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

void record_stream(Tensor&, c10::Stream) {}

// ------------------------------------------------------------------------------------------------- all other operators
// Kernels of CUDA builds that read a size or a value back to the host.
const std::set<std::string> kWaiting = {
    "aten::nonzero", "aten::equal", "aten::masked_select", "aten::_unique", "aten::_unique2", "aten::unique_dim",
    "aten::unique_consecutive", "aten::unique_dim_consecutive", "aten::bincount", "aten::histc"};
// Operators besides pointwise ones whose CUDA kernels take CPU tensors of no dimension.
const std::set<std::string> kTakesScalars = {
    "aten::index_put_", "aten::_index_put_impl_", "aten::masked_fill_", "aten::where", "aten::fill_",
    "aten::index_fill_", "aten::clamp", "aten::clamp_", "aten::pow", "aten::floor_divide", "aten::floor_divide_",
    "aten::_foreach_mul_"};
const std::set<std::string> kIndexing = {
    "aten::index", "aten::_unsafe_index", "aten::index_put_", "aten::_index_put_impl_"};

using Each = std::function<void(Tensor&)>;

void each_tensor(IValue& value, const Each& visit) { // visit may replace it; lists may have gaps
  if (value.isTensor()) {
    auto t = value.toTensor();
    visit(t);
    value = IValue(t);
  } else if (value.isTensorList()) {
    auto tensors = value.toTensorVector();
    for (auto& t : tensors) visit(t);
    value = IValue(c10::List<Tensor>(tensors));
  } else if (value.isList()) {
    c10::List<Maybe<Tensor>> tensors;
    bool any = false;
    for (const IValue& item : value.toListRef()) {
      if (!item.isTensor() && !item.isNone()) return;
      Maybe<Tensor> t;
      if (item.isTensor()) {
        t = item.toTensor();
        visit(*t);
        any = true;
      }
      tensors.push_back(t);
    }
    if (any) value = IValue(tensors);
  }
}

Device device_of(const std::vector<IValue>& given) {
  Maybe<Device> device;
  for (auto value : given) {
    each_tensor(value, [&](Tensor& t) {
      if (is_fake(t) && !device) device = t.device();
    });
    if (!device && value.isDevice() && value.toDevice().type() == fake::kType) device = value.toDevice();
  }
  return device.value_or(Device(fake::kType, fake::current()));
}

// Indices on the host are uploaded; masks become indices, whose number the host has to know. `index` itself has done
// and reported both where the shape of its output was found.
void move_indices(const std::string& name, Device device, std::vector<IValue>& given) {
  if (!kIndexing.count(name) || given[0].toTensor().device() != device) return;
  const bool puts = name != "aten::index";
  const bool fills = puts && given[2].toTensor().numel() == 1 && given[2].toTensor().is_cpu();
  each_tensor(given[1], [&](Tensor& t) {
    if (!t.defined()) return;
    const bool mask = t.scalar_type() == at::kBool || t.scalar_type() == at::kByte;
    if (puts && mask && !fills) report("sync", name);
    if (!t.is_cpu()) return;
    if (puts) report("h2d", name, t.nbytes());
    fake::Unreported inner;
    t = on_device(t, device);
  });
}

void refuse_mixed(const c10::OperatorHandle& op, Device device, std::vector<IValue>& given) {
  const auto& name = op.schema().name();
  const bool scalars = op.hasTag(at::Tag::pointwise) || kTakesScalars.count(name);
  for (auto& value : given) {
    each_tensor(value, [&](Tensor& t) {
      if (!t.defined() || t.device() == device) return;
      const bool number = t.is_cpu() && t.dim() == 0 && (scalars || t.unsafeGetTensorImpl()->is_wrapped_number());
      TORCH_CHECK(
          number, "Expected all tensors to be on the same device, but found at least two devices, ", device, " and ",
          t.device(), "! (fake CUDA, in ", name, ")");
    });
    if (!value.isGenerator() || !value.toGenerator().defined()) continue;
    const auto owner = value.toGenerator().device();
    TORCH_CHECK(owner.type() == fake::kType, "Expected a 'cuda' device type for generator but found '", owner, "'");
  }
}

Tensor view_of(const std::vector<IValue>& given, const Tensor& host) { // a view of an argument: its memory again
  const auto* place = static_cast<const char*>(host.data_ptr());
  for (const auto& value : given) {
    if (!value.isTensor() || !is_fake(value.toTensor())) continue;
    const auto base = value.toTensor();
    const auto* begin = static_cast<const char*>(base.storage().data());
    if (place < begin || place >= begin + base.storage().nbytes()) continue;
    return at::native::as_strided_tensorimpl(
        base, host.sizes(), host.strides(), (place - begin) / static_cast<int64_t>(host.element_size()));
  }
  return {};
}

void by_the_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto& arguments = schema.arguments();
  const auto& results = schema.returns();
  const size_t begin = stack->size() - arguments.size();
  std::vector<IValue> given(stack->begin() + begin, stack->end());
  const auto device = device_of(given);
  move_indices(schema.name(), device, given);
  refuse_mixed(op, device, given);
  if (kWaiting.count(schema.name())) report("sync", schema.name());
  bool view = false;
  for (const auto& result : results) view |= result.alias_info() && !result.alias_info()->isWrite();
  report(view ? "view" : "launch", schema.name());

  fake::Unreported inner;
  fake::On here(device.index());
  std::vector<std::pair<Tensor, Tensor>> written; // what is written to, and its memory as the CPU sees it
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool writes = arguments[i].alias_info() && arguments[i].alias_info()->isWrite();
    IValue value = given[i];
    each_tensor(value, [&](Tensor& t) {
      const auto host = writes && t.defined() && !t.numel() ? at::empty_like(on_host(t)) : on_host(t);
      if (writes && t.defined()) written.emplace_back(t, host);
      t = host;
    });
    const bool random = value.isGenerator() || (value.isNone() && arguments[i].name() == "generator");
    if (random && value.isGenerator() && value.toGenerator().defined()) {
      value = fake::host_generator(value.toGenerator());
    } else if (random) {
      value = fake::host_generator(fake::default_generator(device.index()));
    } else if (value.isDevice()) {
      value = Device(c10::DeviceType::CPU);
    }
    (*stack)[begin + i] = value;
  }
  op.redispatchBoxed(c10::DispatchKeySet(DispatchKey::CPU), stack);
  for (const auto& [original, host] : written) { // outputs that the kernel has resized
    if (original.sizes() == host.sizes()) continue;
    at::native::resize_(original, host.sizes(), std::nullopt);
    on_host(original).copy_(host);
  }
  const size_t first = stack->size() - results.size();
  for (size_t i = 0; i < results.size(); ++i) {
    const auto* alias = results[i].alias_info();
    each_tensor((*stack)[first + i], [&](Tensor& t) {
      if (!t.defined()) return;
      for (const auto& [original, host] : written) {
        if (alias && alias->isWrite() && host.is_same(t)) {
          t = original;
          return;
        }
      }
      const auto viewed = alias && !alias->isWrite() ? view_of(given, t) : Tensor();
      t = viewed.defined() ? viewed : on_device(t, device);
    });
  }
}

// ----------------------------------------------------------------------------------------------------------- attention
// What a CUDA build prefers on a card of compute capability 9 or 10 (sdp_utils.cpp): cuDNN, flash, memory-efficient.
int64_t preferred(
    const Tensor& q, const Tensor&, const Tensor&, const Maybe<Tensor>& mask, double, bool, Maybe<double>, bool) {
  const auto& context = at::globalContext();
  const bool half = q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16;
  const bool masked = mask && mask->defined();
  auto backend = at::SDPBackend::math;
  if (context.userEnabledMemEfficientSDP()) backend = at::SDPBackend::efficient_attention;
  if (context.userEnabledFlashSDP() && half && !masked) backend = at::SDPBackend::flash_attention;
  if (context.userEnabledCuDNNSDP() && half) backend = at::SDPBackend::cudnn_attention;
  return static_cast<int64_t>(backend);
}

Tensor attention(
    const char* name, const Tensor& q, const Tensor& k, const Tensor& v, const Maybe<Tensor>& mask, bool causal,
    Maybe<double> scale) {
  report("launch", name);
  fake::Unreported inner;
  const bool grouped = q.size(-3) != k.size(-3);
  const auto bias = mask && mask->defined() ? Maybe<Tensor>(on_host(*mask)) : std::nullopt;
  const auto host =
      at::scaled_dot_product_attention(on_host(q), on_host(k), on_host(v), bias, 0.0, causal, scale, grouped);
  return on_device(host, q.device());
}

using Sizes = c10::SymInt;

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient(
    const Tensor& q, const Tensor& k, const Tensor& v, const Maybe<Tensor>& mask, bool, double, bool causal,
    Maybe<double> scale) {
  return {attention("attention.efficient", q, k, v, mask, causal, scale), {}, {}, {}};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Sizes, Sizes, Tensor, Tensor, Tensor> flash(
    const Tensor& q, const Tensor& k, const Tensor& v, double, bool causal, bool, Maybe<double> scale) {
  return {attention("attention.flash", q, k, v, {}, causal, scale), {}, {}, {}, 0, 0, {}, {}, {}};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Sizes, Sizes, Tensor, Tensor, Tensor> cudnn(
    const Tensor& q, const Tensor& k, const Tensor& v, const Maybe<Tensor>& mask, bool, double, bool causal, bool,
    Maybe<double> scale) {
  return {attention("attention.cudnn", q, k, v, mask, causal, scale), {}, {}, {}, 0, 0, {}, {}, {}};
}

TORCH_LIBRARY_IMPL(_, CUDA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&by_the_cpu>());
}
TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("copy_", &copy_);
  m.impl("_local_scalar_dense", &read_scalar);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("record_stream", &record_stream);
  m.impl("_scaled_dot_product_efficient_attention", &efficient);
  m.impl("_scaled_dot_product_flash_attention", &flash);
  m.impl("_scaled_dot_product_cudnn_attention", &cudnn);
}
} // namespace

namespace at::native {
REGISTER_CUDA_DISPATCH(_fused_sdp_choice_stub, &preferred)
}
