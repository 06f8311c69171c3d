#include "names.h"

#include <cctype>

#include "losses.h"

namespace lanewise {

// Never destroyed: other threads may still run when the process ends.
Names& names = *new Names;

Names::Names() { insert(""); }

const Name* Names::insert(std::string_view text) {
  uint8_t flags = kPlain;
  if (text.size() >= 14 && text.substr(text.size() - 14) == "AccumulateGrad") flags |= kAccumulate;
  if (text.substr(0, 35) == "autograd::engine::evaluate_function") flags |= kEvaluate;
  names_.push_back({std::string(text), static_cast<uint32_t>(names_.size()), flags});
  const Name* name = &names_.back();
  index_.emplace(name->text, name);
  bytes_ += text.size();
  return name;
}

const Name* Names::intern(std::string_view text) {
  if (text.size() > kLongest) text = text.substr(0, kLongest);
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = index_.find(text);
  if (found != index_.end()) return found->second;
  if (bytes_ + text.size() > kMostBytes) {
    count(losses.names_refused);
    const auto other = index_.find("<other names>");
    return other != index_.end() ? other->second : insert("<other names>");
  }
  return insert(text);
}

std::deque<std::string> Names::texts() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::deque<std::string> result;
  for (const Name& name : names_) result.push_back(name.text);
  return result;
}

std::string without_counters(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  const auto digits = [&](size_t at, bool hex) {
    while (at < text.size() && (hex ? std::isxdigit(static_cast<unsigned char>(text[at]))
                                    : std::isdigit(static_cast<unsigned char>(text[at]))))
      ++at;
    return at;
  };
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '#' && digits(at + 1, false) > at + 1) {
      result += "#*";
      at = digits(at + 1, false);
    } else if (text.compare(at, 6, " at 0x") == 0) {
      at = digits(at + 6, true);
    } else {
      result += text[at++];
    }
  }
  return result;
}

}  // namespace lanewise
