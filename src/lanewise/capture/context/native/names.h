// Texts as numbers. Interning takes a lock and happens once per text and thread; after that a small cache answers.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace lanewise {

// What a name says about the operator that carries it.
enum NameFlag : uint8_t {
  kPlain = 0,
  kAccumulate = 1,  // moves a gradient into a parameter
  kEvaluate = 2,    // the autograd engine runs one function, with its hooks
};

struct Name {
  std::string text;
  uint32_t id;
  uint8_t flags;
};

class Names {
 public:
  // Bytes of text in all; beyond them every new name is one and the same.
  static constexpr size_t kMostBytes = 16u << 20;
  static constexpr size_t kLongest = 4000;

  Names();
  const Name* intern(std::string_view text);
  // All texts, by number.
  std::deque<std::string> texts();

 private:
  const Name* insert(std::string_view text);

  std::mutex mutex_;
  std::deque<Name> names_;
  std::unordered_map<std::string_view, const Name*> index_;
  size_t bytes_ = 0;
};

extern Names& names;

// Name of a user scope without what changes from call to call: counters after `#`, addresses.
std::string without_counters(std::string_view text);

// What is needed of a name while a program runs.
struct NameKey {
  uint64_t hash;  // of its letters; 0 for none
  uint32_t id;
  uint8_t flags;
};

// Names that one thread has seen, without a lock, by a hash of their letters: addresses do not stay, as names of backward
// functions are put together anew for every call. Letters are not compared again: among a million different names the
// chance that two have one hash of 63 bits is 5e-8.
class NameCache {
 public:
  static uint64_t hash_of(std::string_view text) { return hash_of(text.data(), text.size()); }
  NameKey find(std::string_view text, uint64_t hash) {
    NameKey& here = slots_[hash % kSlots];
    if (__builtin_expect(here.hash != hash, 0)) {
      const Name* name = names.intern(text);
      here = {hash, name->id, name->flags};
    }
    return here;
  }
  void clear() { std::memset(static_cast<void*>(slots_), 0, sizeof(slots_)); }

 private:
  static constexpr size_t kSlots = 2048;

  static uint64_t hash_of(const char* text, size_t size) {
    uint64_t hash = size * UINT64_C(0xD6E8FEB86659FD93);
    for (; size >= 8; text += 8, size -= 8) {
      uint64_t eight;
      std::memcpy(&eight, text, 8);
      hash = mixed(hash ^ eight);
    }
    uint64_t rest = 0;
    std::memcpy(&rest, text, size);
    return mixed(hash ^ rest) | 1;
  }
  // A multiplication alone keeps what differs in the upper bits there.
  static uint64_t mixed(uint64_t value) {
    const auto wide = static_cast<unsigned __int128>(value ^ UINT64_C(0x9E3779B97F4A7C15)) * UINT64_C(0xA0761D6478BD642F);
    return static_cast<uint64_t>(wide) ^ static_cast<uint64_t>(wide >> 64);
  }

  NameKey slots_[kSlots] = {};
};

}  // namespace lanewise
