#include "contexts.h"

#include <new>

namespace lanewise {

std::atomic<uint32_t> nodes_made{0};
std::atomic<uint32_t> most_nodes{200000};

namespace {

uint64_t key_hash(const Node* parent, Kind kind, uint32_t name, uint64_t forward) {
  uint64_t hash = reinterpret_cast<uintptr_t>(parent) >> 4;
  hash = (hash ^ name) * UINT64_C(0x9E3779B97F4A7C15);
  hash ^= forward * UINT64_C(0xC2B2AE3D27D4EB4F) ^ static_cast<uint64_t>(kind);
  return hash ^ (hash >> 32);
}

constexpr uint32_t kTruncated = 1;  // the second node of every tree

}  // namespace

Tree::Tree(uint32_t index) : index_(index) { clear(0); }

void Tree::clear(uint32_t role) {
  size_.store(0, std::memory_order_release);
  children_.assign(256, nullptr);
  children_used_ = 0;
  paths_.assign(256, Path{0, nullptr});
  paths_used_ = 0;
  if (auto* sequences = sequences_.load(std::memory_order_relaxed))
    for (uint32_t i = 0; i < kSequences; ++i) sequences[i].store(0, std::memory_order_relaxed);
  Node* root = make(nullptr, Kind::kRoot, role, 0);
  make(root, Kind::kMark, names.intern("<truncated>")->id, 0);
}

Node* Tree::make(Node* parent, Kind kind, uint32_t name, uint64_t forward) {
  const uint32_t id = size_.load(std::memory_order_relaxed);
  auto& chunk = chunks_[id / kChunk];
  Node* nodes = chunk.load(std::memory_order_relaxed);
  if (nodes == nullptr) {
    nodes = static_cast<Node*>(::operator new(sizeof(Node) * kChunk, std::align_val_t(alignof(Node))));
    chunk.store(nodes, std::memory_order_release);
  }
  Node* node = new (&nodes[id % kChunk]) Node{parent, forward, name, id, 0, kind, {0}, 0, {0}, {0}, nullptr, nullptr};
  node->depth = parent == nullptr ? 0 : static_cast<uint16_t>(parent->depth < 0xFFFF ? parent->depth + 1 : 0xFFFF);
  size_.store(id + 1, std::memory_order_release);
  nodes_made.fetch_add(1, std::memory_order_relaxed);
  return node;
}

Node* Tree::look_up(Node* parent, Kind kind, uint32_t name, uint64_t forward) {
  size_t mask = children_.size() - 1;
  size_t slot = key_hash(parent, kind, name, forward) & mask;
  while (Node* node = children_[slot]) {
    if (node->parent == parent && node->name == name && node->kind == kind && node->forward == forward) return node;
    slot = (slot + 1) & mask;
  }
  if (parent->id == kTruncated || size() >= kMostNodes ||
      nodes_made.load(std::memory_order_relaxed) >= most_nodes.load(std::memory_order_relaxed)) {
    count(losses.truncated);
    return at(kTruncated);
  }
  Node* node = make(parent, kind, name, forward);
  children_[slot] = node;
  if (++children_used_ * 2 > children_.size()) grow_children();
  return node;
}

void Tree::grow_children() {
  std::vector<Node*> bigger(children_.size() * 2, nullptr);
  const size_t mask = bigger.size() - 1;
  for (Node* node : children_) {
    if (node == nullptr) continue;
    size_t slot = key_hash(node->parent, node->kind, node->name, node->forward) & mask;
    while (bigger[slot] != nullptr) slot = (slot + 1) & mask;
    bigger[slot] = node;
  }
  children_.swap(bigger);
}

Node* Tree::find_path(uint64_t hash) const {
  const size_t mask = paths_.size() - 1;
  for (size_t slot = hash & mask; paths_[slot].leaf != nullptr; slot = (slot + 1) & mask)
    if (paths_[slot].hash == hash) return paths_[slot].leaf;
  return nullptr;
}

void Tree::remember_path(uint64_t hash, Node* leaf) {
  if ((paths_used_ + 1) * 2 > paths_.size()) {
    // Paths outnumber contexts only where contexts are truncated; then the memory of them starts anew.
    if (paths_.size() >= kMostNodes) return forget_paths();
    std::vector<Path> old(paths_.size() * 2, Path{0, nullptr});
    old.swap(paths_);
    paths_used_ = 0;
    for (const Path& path : old)
      if (path.leaf != nullptr) remember_path(path.hash, path.leaf);
  }
  const size_t mask = paths_.size() - 1;
  size_t slot = hash & mask;
  while (paths_[slot].leaf != nullptr) slot = (slot + 1) & mask;
  paths_[slot] = {hash, leaf};
  ++paths_used_;
}

void Tree::forget_paths() {
  paths_.assign(paths_.size(), Path{0, nullptr});
  paths_used_ = 0;
}

void Tree::remember_sequence(int64_t sequence, const Node* node) {
  auto* sequences = sequences_.load(std::memory_order_relaxed);
  if (sequences == nullptr) {
    sequences = new std::atomic<uint64_t>[kSequences] {};
    sequences_.store(sequences, std::memory_order_release);
  }
  const auto number = static_cast<uint64_t>(sequence);
  sequences[number % kSequences].store((number / kSequences) << 24 | (node->id + 1), std::memory_order_relaxed);
}

uint64_t Tree::find_sequence(int64_t sequence) const {
  const auto* sequences = sequences_.load(std::memory_order_acquire);
  if (sequences == nullptr) return 0;
  const auto number = static_cast<uint64_t>(sequence);
  const uint64_t found = sequences[number % kSequences].load(std::memory_order_relaxed);
  if (found == 0 || found >> 24 != number / kSequences) return 0;
  return (static_cast<uint64_t>(index_ + 1) << 32) | ((found & 0xFFFFFF) - 1);
}

}  // namespace lanewise
