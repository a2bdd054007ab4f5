// tracer.cpp -- writes down what PyTorch asks its allocators for, in the order in which it asks.
//
// Built and loaded by record.py; no part of Plimsoll. Two allocators are watched:
//   meta  the allocator of the meta device is replaced by one that hands out numbers instead of memory;
//   cpu   the memory reporting hook that the profiler uses, without the profiler.
// A record-function callback notes which op or autograd node was running. Nothing here holds a tensor, so life times are the
// program's own. The log is text, one event a line:
//   A id bytes | F id | E flags seq name | X | U id | O id | M label | ...   (alloc, free, enter, exit, input, output, mark)
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <unordered_map>

namespace {
std::mutex lock;
std::string text;
bool on = false;
uint64_t next_id = 1;
std::unordered_map<void*, uint64_t> cpu_ids;

void say(const std::string& s) {
  std::lock_guard<std::mutex> g(lock);
  if (on) text += s + "\n";
}

struct Cell { uint64_t id; };

void cell_free(void* p) {
  auto* c = static_cast<Cell*>(p);
  say("F " + std::to_string(c->id));
  delete c;
}

struct MetaCounter final : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    if (n == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, c10::Device(c10::kMeta)};
    auto* c = new Cell{next_id++};
    say("A " + std::to_string(c->id) + " " + std::to_string(n) + " m");
    return {nullptr, c, &cell_free, c10::Device(c10::kMeta)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override {}
};
MetaCounter meta_counter;

struct CpuWatch final : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* p, int64_t n, size_t, size_t, c10::Device d) override {
    if (d.type() != c10::kCPU) return;
    if (n > 0) {
      uint64_t id = next_id++;
      cpu_ids[p] = id;
      say("A " + std::to_string(id) + " " + std::to_string(n) + " c");
    } else if (n < 0) {
      auto it = cpu_ids.find(p);
      if (it == cpu_ids.end()) return;
      say("F " + std::to_string(it->second));
      cpu_ids.erase(it);
    }
  }
  bool memoryProfilingEnabled() const override { return true; }
};

uint64_t id_of(const c10::StorageImpl* s) {
  if (s->device_type() == c10::kMeta) {
    auto* c = static_cast<Cell*>(const_cast<c10::StorageImpl*>(s)->mutable_data_ptr().get_context());
    return c ? c->id : 0;
  }
  auto it = cpu_ids.find(const_cast<void*>(s->data()));
  return it == cpu_ids.end() ? 0 : it->second;
}

void use(const at::Tensor& t, char what) {
  if (!t.defined() || !t.has_storage()) return;
  uint64_t id = id_of(t.storage().unsafeGetStorageImpl());
  if (id) say(std::string(1, what) + " " + std::to_string(id));
}

void each(const c10::IValue& v, char what) {
  if (v.isTensor()) use(v.toTensor(), what);
  else if (v.isTensorList()) for (const at::Tensor& t : v.toTensorVector()) use(t, what);
  else if (v.isList()) for (const c10::IValue& e : v.toListRef()) { if (e.isTensor()) use(e.toTensor(), what); }
}

c10::ArrayRef<const c10::IValue> values(const at::RecordFunction& fn, bool) {
  try {
    return fn.inputs();
  } catch (const std::exception&) {  // an op whose arguments were not boxed
    return {};
  }
}

template <bool inputs>
std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& fn) {
  int flags = 0;
  if (auto name = fn.operator_name()) {
    if (auto op = c10::Dispatcher::singleton().findOp(*name)) {
      flags |= op->hasKernelForDispatchKey(c10::DispatchKey::CUDA) ? 1 : 0;
      flags |= op->hasKernelForDispatchKey(c10::DispatchKey::Meta) ? 2 : 0;
      flags |= op->hasKernelForDispatchKey(c10::DispatchKey::CPU) ? 4 : 0;
      flags |= op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ? 8 : 0;
      flags |= op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ? 16 : 0;
    }
  }
  if (fn.scope() == at::RecordScope::BACKWARD_FUNCTION) flags |= 32;
  if (fn.scope() == at::RecordScope::USER_SCOPE) flags |= 64;
  const char* over = fn.operator_name() ? fn.overload_name() : "";
  say("E " + std::to_string(flags) + " " + std::to_string(fn.seqNr()) + " " + fn.name() + (over && *over ? std::string(".") + over : ""));
  if (inputs) {
    const auto vs = values(fn, true);
    for (const auto& v : vs) each(v, 'U');
  }
  return nullptr;
}

template <bool outputs>
void leave(const at::RecordFunction& fn, at::ObserverContext*) {
  if (outputs)
    for (const auto& v : fn.outputs()) each(v, 'O');
  say("X");
}
}  // namespace

extern "C" {
void tr_setup(int uses) {
  c10::SetAllocator(c10::kMeta, &meta_counter, 255);
  c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<CpuWatch>());
  if (uses)
    at::addGlobalCallback(at::RecordFunctionCallback(&enter<true>, &leave<true>).needsInputs(true).needsOutputs(true));
  else
    at::addGlobalCallback(at::RecordFunctionCallback(&enter<false>, &leave<false>));
}
void tr_on(int yes) { std::lock_guard<std::mutex> g(lock); on = yes != 0; }
void tr_say(const char* line) { say(line); }
uint64_t tr_id(void* storage) { return id_of(static_cast<c10::StorageImpl*>(storage)); }
uint64_t tr_next(void) { return next_id; }
const char* tr_text(void) { return text.c_str(); }
void tr_clear(void) { std::lock_guard<std::mutex> g(lock); text.clear(); }
}
