// How fast C++ with simdjson gets the same columns out of the same bytes: the floor under any reader of this JSON.
//
//     g++ -O3 -march=native -std=c++17 floor.cpp -lsimdjson -o floor && ./floor TRACE.json
//
// One pass on demand over all rows; names, categories, lanes and shape lists become numbers; prints seconds and MB.

#include <simdjson.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

using namespace simdjson;

struct Interner {
  std::unordered_map<std::string, uint32_t> known;
  uint32_t number(std::string_view text) {
    return known.try_emplace(std::string(text), uint32_t(known.size())).first->second;
  }
};

int main(int, char** argv) {
  const auto begun = std::chrono::steady_clock::now();
  padded_string text = padded_string::load(argv[1]);
  ondemand::parser parser;
  ondemand::document document = parser.iterate(text);
  Interner names, categories, shapes;
  std::vector<uint32_t> name, shape;
  std::vector<uint8_t> category;
  std::vector<int64_t> start, duration, process, thread, correlation, external, sequence, forward, parent, id, kernel;
  for (ondemand::object row : document["traceEvents"].get_array()) {
    int64_t correlation_id = -1, external_id = -1, sequence_number = -1, forward_thread = -1, python_parent = -1, flow = -1;
    int64_t pid = -1, tid = -1;
    double ts = 0, dur = 0;
    for (auto field : row) {
      const std::string_view key = field.unescaped_key();
      ondemand::value value = field.value();
      if (key == "ts") ts = value.get_double();
      else if (key == "dur") dur = value.get_double();
      else if (key == "pid") { if (value.get_int64().get(pid)) pid = -1; }
      else if (key == "tid") { if (value.get_int64().get(tid)) tid = -1; }
      else if (key == "id") flow = value.get_int64();
      else if (key == "name") name.push_back(names.number(value.get_string()));
      else if (key == "cat") category.push_back(uint8_t(categories.number(value.get_string())));
      else if (key == "args") {
        for (auto arg : value.get_object()) {
          const std::string_view inner = arg.unescaped_key();
          ondemand::value content = arg.value();
          if (inner == "External id") external_id = content.get_int64();
          else if (inner == "correlation") correlation_id = content.get_int64();
          else if (inner == "Sequence number") sequence_number = content.get_int64();
          else if (inner == "Fwd thread id") forward_thread = content.get_int64();
          else if (inner == "Python parent id") { if (content.get_int64().get(python_parent)) python_parent = -1; }
          else if (inner == "Input Dims" || inner == "Input type" || inner == "Input Strides" || inner == "Concrete Inputs")
            shape.push_back(shapes.number(to_json_string(content)));
          else if (inner == "grid" || inner == "block")
            for (int64_t size : content.get_array()) kernel.push_back(size);
          else if (inner == "registers per thread" || inner == "shared memory") kernel.push_back(content.get_int64());
        }
      }
    }
    start.push_back(int64_t(std::floor(ts)) * 1000 + std::llrint((ts - std::floor(ts)) * 1000));
    duration.push_back(std::llrint(dur * 1000));
    process.push_back(pid);
    thread.push_back(tid);
    correlation.push_back(correlation_id);
    external.push_back(external_id);
    sequence.push_back(sequence_number);
    forward.push_back(forward_thread);
    parent.push_back(python_parent);
    id.push_back(flow);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  std::printf("{\"seconds\": %.4f, \"peak_mb\": %.1f, \"rows\": %zu}\n", seconds, usage.ru_maxrss / 1024.0, start.size());
}
