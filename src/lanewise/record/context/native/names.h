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

// The last name seen at each of a few thousand addresses. An address may be reused for another text, so the text is
// compared as well.
class NameCache {
 public:
  const Name* find(const char* text) {
    Slot& slot = slots_[(reinterpret_cast<uintptr_t>(text) >> 3) % kSlots];
    if (slot.address == text && std::strcmp(slot.name->text.c_str(), text) == 0) return slot.name;
    const Name* name = names.intern(text);
    slot = {text, name};
    return name;
  }
  void clear() { std::memset(static_cast<void*>(slots_), 0, sizeof(slots_)); }

 private:
  static constexpr size_t kSlots = 1024;
  struct Slot {
    const char* address;
    const Name* name;
  };
  Slot slots_[kSlots] = {};
};

}  // namespace lanewise
