// Parts of what a collector asks of CUPTI, each by itself: what each call and each record cost, whatever is done with them.
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "cupti_library.h"

using namespace lanewise::cupti;

namespace {

constexpr size_t kBytes = 4u << 20;
constexpr ActivityKind kKinds[] = {kConcurrentKernel, kMemcpy, kMemset};

std::mutex mutex;
std::vector<uint8_t*> pool;
Subscriber subscriber = nullptr;

void called(void*, Domain, uint32_t, const void*) {}

void requested(uint8_t** buffer, size_t* size, size_t* most) {
  *most = 0;
  *size = kBytes;
  std::lock_guard<std::mutex> lock(mutex);
  if (pool.empty()) {
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBytes));
  } else {
    *buffer = pool.back();
    pool.pop_back();
  }
}

void completed(Context, uint32_t, uint8_t* buffer, size_t, size_t) {
  if (buffer == nullptr) return;
  std::lock_guard<std::mutex> lock(mutex);
  pool.push_back(buffer);
}

}  // namespace

extern "C" {

// "" or what is wrong.
const char* parts_open(const char* path) {
  static std::string wrong;
  wrong = open_library(path);
  if (wrong.empty() && functions.cuptiActivityRegisterCallbacks(requested, completed) != kSuccess) wrong = "no records";
  return wrong.c_str();
}

int parts_subscribe() {
  const int result = functions.cuptiSubscribe(&subscriber, called, nullptr);
  if (result == kSuccess) enable_calls(subscriber);
  return result;
}

void parts_unsubscribe() {
  if (subscriber != nullptr) functions.cuptiUnsubscribe(subscriber);
  subscriber = nullptr;
}

void parts_records(int on) {
  for (ActivityKind kind : kKinds) on ? functions.cuptiActivityEnable(kind) : functions.cuptiActivityDisable(kind);
}

void parts_flush() { functions.cuptiActivityFlushAll(kFlushForced); }
}
