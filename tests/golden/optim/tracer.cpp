// tracer.cpp -- writes down what PyTorch asks its CPU allocator for, in the order in which it asks.
//
// Built and loaded by record.py; no part of Plimsoll. It is the memory reporting hook that the profiler uses, without the
// profiler, and a record-function callback that notes which op or autograd node is running. Nothing here holds a tensor, so
// life times are the program's own. The log is text, one event a line:
//   A id bytes | F id | E name | X | M label        (alloc, free, enter, exit, mark)
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <mutex>
#include <string>
#include <unordered_map>

namespace {
std::mutex lock;
std::string text;
bool on = false;

void say(const std::string& s) {
  std::lock_guard<std::mutex> g(lock);
  if (on) text += s + "\n";
}

struct CpuWatch final : c10::MemoryReportingInfoBase {
  std::unordered_map<void*, uint64_t> ids;
  uint64_t next = 1;

  void reportMemoryUsage(void* p, int64_t n, size_t, size_t, c10::Device) override {
    if (n > 0) {
      ids[p] = next;
      say("A " + std::to_string(next++) + " " + std::to_string(n));
    } else if (auto it = ids.find(p); it != ids.end()) {
      say("F " + std::to_string(it->second));
      ids.erase(it);
    }
  }
  bool memoryProfilingEnabled() const override { return true; }
};

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& fn) {
  const char* overload = fn.operator_name() ? fn.overload_name() : "";
  say(std::string("E ") + fn.name() + (overload && *overload ? std::string(".") + overload : ""));
  return nullptr;
}

void leave(const at::RecordFunction&, at::ObserverContext*) { say("X"); }
}  // namespace

extern "C" {
void tr_setup(void) {
  c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<CpuWatch>());
  at::addGlobalCallback(at::RecordFunctionCallback(&enter, &leave));
}
void tr_on(int yes) {
  std::lock_guard<std::mutex> g(lock);
  on = yes != 0;
}
void tr_say(const char* line) { say(line); }
const char* tr_text(void) { return text.c_str(); }
void tr_clear(void) {
  std::lock_guard<std::mutex> g(lock);
  text.clear();
}
}
