#include "simulator/trace.h"

#include <algorithm>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "simulator/random.h"
#include "simulator/trace_fields.h"

namespace quire::simulator {
namespace {

constexpr std::int32_t kMaxTokens = 1 << 24;
constexpr std::size_t kMaxRequests = 10'000'000;

// The first `length` tokens of `text`.
std::vector<Segment> Head(const std::vector<Segment>& text, std::int32_t length) {
  std::vector<Segment> head;
  for (Segment segment : text) {
    if (length == 0) break;
    segment.length = std::min(segment.length, length);
    length -= segment.length;
    head.push_back(segment);
  }
  return head;
}

class TraceReader {
 public:
  explicit TraceReader(std::uint64_t seed) : seed_(seed) {}

  absl::Status Read(FieldReader& fields) {
    if (requests_.size() == kMaxRequests) {
      return InvalidArgument("a trace has at most {} requests", kMaxRequests);
    }
    Request request;
    const auto index = static_cast<std::uint64_t>(requests_.size());
    request.output_stream = TokenStreamId(seed_, RandomUse::kOutputStream, index);
    if (fields.Has("arrival_s")) {
      double seconds = 0;
      QUIRE_RETURN_IF_ERROR(fields.Number("arrival_s", 0, 1e9, &seconds));
      request.arrival = absl::Seconds(seconds);
    }
    if (fields.Has("n")) {
      QUIRE_RETURN_IF_ERROR(fields.Int("n", 1, 1 << 16, &request.num_branches));
    }
    QUIRE_RETURN_IF_ERROR(ReadOutput(fields, &request));
    if (fields.Has("prompt_ids")) {
      QUIRE_RETURN_IF_ERROR(fields.TokenIds("prompt_ids", &request.prompt_ids));
    } else {
      QUIRE_RETURN_IF_ERROR(ReadPrompt(fields, index, &request));
    }
    requests_.push_back(std::move(request));
    return fields.NoOthers();
  }

  std::vector<Request> Take() {
    std::ranges::stable_sort(requests_, {}, &Request::arrival);
    return std::move(requests_);
  }

 private:
  absl::Status ReadOutput(FieldReader& fields, Request* request) {
    if (!fields.Has("output_ids")) {
      return fields.Int("output_tokens", 1, kMaxTokens, &request->output_len);
    }
    QUIRE_RETURN_IF_ERROR(fields.TokenIds("output_ids", &request->output_ids));
    request->output_len = static_cast<std::int32_t>(request->output_ids.size());
    return absl::OkStatus();
  }

  absl::Status ReadPrompt(FieldReader& fields, std::uint64_t index, Request* request) {
    std::int32_t length = 0;
    QUIRE_RETURN_IF_ERROR(fields.Int("prompt_tokens", 1, kMaxTokens, &length));
    std::int32_t known = 0;
    std::string session;
    if (fields.Has("session")) {
      QUIRE_RETURN_IF_ERROR(fields.String("session", &session));
      request->prompt = Head(sessions_[session], length);
      known = request->prompt_len();
    }
    if (fields.Has("prefix")) {
      std::string prefix;
      std::int32_t prefix_len = 0;
      QUIRE_RETURN_IF_ERROR(fields.String("prefix", &prefix));
      QUIRE_RETURN_IF_ERROR(fields.Int("prefix_tokens", 1, length, &prefix_len));
      if (known == 0) {
        const auto number = prefixes_.try_emplace(prefix, prefixes_.size()).first->second;
        request->prompt.push_back(
            {TokenStreamId(seed_, RandomUse::kPrefixStream, number), 0, prefix_len});
        known = prefix_len;
      }
    }
    if (known < length) {
      request->prompt.push_back(
          {TokenStreamId(seed_, RandomUse::kPromptStream, index), 0, length - known});
    }
    if (!session.empty()) {
      if (!request->output_ids.empty()) {
        return fields.Error("output_ids", "needs \"prompt_ids\" in a session");
      }
      request->session = session;
      std::vector<Segment>& text = sessions_[session];
      text = request->prompt;
      text.push_back({request->output_stream, 0, request->output_len});
    }
    return absl::OkStatus();
  }

  const std::uint64_t seed_;
  std::vector<Request> requests_;
  absl::flat_hash_map<std::string, std::vector<Segment>> sessions_;  // The text so far.
  absl::flat_hash_map<std::string, std::uint64_t> prefixes_;
};

}  // namespace

absl::StatusOr<std::vector<Request>> ParseTrace(std::string_view text, TraceFormat format,
                                                std::uint64_t seed) {
  TraceReader reader(seed);
  const LineHandler read = [&](FieldReader& fields) { return reader.Read(fields); };
  QUIRE_RETURN_IF_ERROR(format == TraceFormat::kCsv ? ForEachCsvLine(text, read)
                                                    : ForEachJsonLine(text, read));
  std::vector<Request> requests = reader.Take();
  if (requests.empty()) return InvalidArgument("the trace has no requests");
  return requests;
}

}  // namespace quire::simulator
