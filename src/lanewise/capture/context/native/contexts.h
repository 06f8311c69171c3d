// One thread's calling-context tree, written by that thread alone and readable by any other at any time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "frames.h"
#include "losses.h"
#include "names.h"

namespace lanewise {

enum class Kind : uint8_t { kRoot, kFrame, kModule, kScope, kOperator, kBackward, kMark, kKernel, kCopy, kSet };

// A context. Costs are exclusive: time of the context itself, without what is inside of it. One line of the cache.
struct alignas(64) Node {
  Node* parent;
  uint64_t forward;  // `reference` of the forward operator of backward work, or 0; of a frame, its function
  uint32_t name;     // number of a name; of a site for frames, of a module for modules
  uint32_t id;       // position in the tree
  uint16_t depth;
  Kind kind;
  std::atomic<uint8_t> flags;
  // Of an operator found by its name alone: where the name lies, or half of the name's hash; an odd number. Of a frame:
  // `mark_of_frame`. Else 0.
  uint32_t mark;
  Counter calls;
  Counter ticks;
  // What repeats is guessed: the child that an activation opened first last time, or of a frame, whose activations are not
  // seen, the child opened last; and the sibling that followed this one last time.
  Node* first;
  Node* next;
};
static_assert(sizeof(Node) == 64);

enum NodeFlag : uint8_t {
  kNumbered = 1,  // autograd gave it a sequence number
};

class Tree {
 public:
  static constexpr uint32_t kChunk = 512;
  static constexpr uint32_t kMostNodes = 1u << 18;  // of any one tree; the limit of all trees is chosen at the start
  static constexpr uint32_t kSequences = 1u << 16;  // operators with a number that a thread remembers

  explicit Tree(uint32_t index);

  // The child of a context, made on first sight. Beyond the limit of nodes it is the `<truncated>` one.
  Node* child(Node* parent, Kind kind, uint32_t name, uint64_t forward = 0) {
    return look_up(parent, kind, name, forward);
  }
  // The same where children follow one another as they did the last time: `last` is the one before it, or nullptr.
  Node* next_child(Node* parent, Node*& last, Kind kind, uint32_t name, uint64_t forward = 0) {
    Node* guess = last != nullptr ? last->next : parent->first;
    if (guess == nullptr || guess->name != name || guess->kind != kind || guess->forward != forward) {
      guess = look_up(parent, kind, name, forward);
      // The `<truncated>` context is nobody's child but the root's.
      if (guess->parent != parent) return guess;
      (last != nullptr ? last->next : parent->first) = guess;
    }
    last = guess;
    return guess;
  }
  // The operator that is guessed to come next, if its mark is this one; else nullptr.
  static Node* guessed(const Node* parent, Node*& last, uint32_t mark) {
    Node* guess = last != nullptr ? last->next : parent->first;
    if (guess == nullptr) return nullptr;
    if (guess->mark != mark) {
      // Something between them that does not always come.
      guess = guess->next;
      if (guess == nullptr || guess->mark != mark) return nullptr;
    }
    last = guess;
    return guess;
  }
  Node* root() { return at(0); }
  Node* at(uint32_t id) { return &chunks_[id / kChunk].load(std::memory_order_acquire)[id % kChunk]; }
  uint32_t size() const { return size_.load(std::memory_order_acquire); }
  uint32_t index() const { return index_; }

  // Empty it for another session or another owner. Only while nobody writes.
  void clear(uint32_t role);

  // A context as one number for other threads: never 0.
  uint64_t reference(const Node* node) const { return (static_cast<uint64_t>(index_ + 1) << 32) | node->id; }

  // The leaf of a path of frames, by hash.
  Node* find_path(uint64_t hash) const;
  void remember_path(uint64_t hash, Node* leaf);
  void forget_paths();

  // The latest operator of each sequence number; the oldest make room for new ones.
  void remember_sequence(int64_t sequence, const Node* node);
  uint64_t find_sequence(int64_t sequence) const;

 private:
  Node* look_up(Node* parent, Kind kind, uint32_t name, uint64_t forward);
  Node* make(Node* parent, Kind kind, uint32_t name, uint64_t forward);
  void grow_children();

  struct Path {
    uint64_t hash;
    Node* leaf;
  };

  const uint32_t index_;
  std::atomic<uint32_t> size_{0};
  std::array<std::atomic<Node*>, kMostNodes / kChunk> chunks_{};
  std::vector<Node*> children_;  // open addressing
  uint32_t children_used_ = 0;
  std::vector<Path> paths_;
  uint32_t paths_used_ = 0;
  // (number / kSequences) << 24 | (node + 1)
  std::atomic<std::atomic<uint64_t>*> sequences_{nullptr};
};

// Of a frame: where its function stands, and whether a loop of the function goes around it. Even, so that it is never taken
// for a name.
inline uint32_t mark_of_frame(int offset, bool looped) { return static_cast<uint32_t>(offset) << 2 | (looped ? 2 : 0); }
inline bool is_looped(const Node* node) { return node->kind == Kind::kFrame && (node->mark & 2) != 0; }
inline bool is_later(const Node* earlier, const Node* later) { return later->mark >> 2 > earlier->mark >> 2; }

// Nodes of all trees together, and their limit.
extern std::atomic<uint32_t> nodes_made;
extern std::atomic<uint32_t> most_nodes;

}  // namespace lanewise
