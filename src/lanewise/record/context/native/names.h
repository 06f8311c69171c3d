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

// Names that one thread has seen, without a lock: by address, where the names of operators stay, and by their letters,
// because the names of backward functions are put together anew for every call. Either way the text is compared.
class NameCache {
 public:
  const Name* find(const char* text) {
    ByAddress& here = by_address_[(reinterpret_cast<uintptr_t>(text) >> 3) % kSlots];
    if (here.address == text && std::strcmp(here.name->text.c_str(), text) == 0) return here.name;
    const Name* name = find_letters(text);
    here = {text, name};
    return name;
  }
  void clear() {
    std::memset(static_cast<void*>(by_address_), 0, sizeof(by_address_));
    std::memset(static_cast<void*>(by_letters_), 0, sizeof(by_letters_));
  }

 private:
  static constexpr size_t kSlots = 1024;
  struct ByAddress {
    const char* address;
    const Name* name;
  };

  static uint64_t hash_of(const char* text, size_t size) {
    uint64_t hash = size;
    for (; size >= 8; text += 8, size -= 8) {
      uint64_t eight;
      std::memcpy(&eight, text, 8);
      hash = (hash ^ eight) * UINT64_C(0x9E3779B97F4A7C15);
    }
    uint64_t rest = 0;
    std::memcpy(&rest, text, size);
    hash = (hash ^ rest) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 32);
  }

  const Name* find_letters(const char* text) {
    const size_t size = std::strlen(text);
    const Name*& here = by_letters_[hash_of(text, size) % kSlots];
    if (here == nullptr || here->text.size() != size || std::memcmp(here->text.data(), text, size) != 0)
      here = names.intern({text, size});
    return here;
  }

  ByAddress by_address_[kSlots] = {};
  const Name* by_letters_[kSlots] = {};
};

}  // namespace lanewise
