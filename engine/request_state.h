// A request on its way from Submit to the engine thread. Which thread may touch it changes hands
// with it: the caller of Submit, then the text thread when there is text to encode, then the engine
// thread. Only `stream` may be used by all of them at any time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "engine/request.h"
#include "engine/sampling/request_sampling.h"
#include "engine/sampling/sampling_params.h"
#include "engine/text/stop_matcher.h"
#include "engine/token_stream.h"

namespace quire::engine {

struct Request {
  explicit Request(std::shared_ptr<TokenStream> s) : stream(std::move(s)) {}

  const std::shared_ptr<TokenStream> stream;
  const std::string& id() const { return stream->request_id(); }

  // Set by Submit.
  std::variant<TextPrompt, TokenPrompt, ChatPrompt> input;  // Emptied when encoded.
  sampling::SamplingParams params;  // Resolved; moves into `sampling` when the prompt is known.
  std::int32_t branches = 1;        // params.n
  std::uint64_t seed = 0;
  std::int32_t priority = 0;
  std::string cache_salt;
  bool bypass_prefix_cache = false;
  std::string session_id;
  bool continue_session = false;
  std::string client_id;
  absl::Time arrival;
  absl::Time deadline = absl::InfiniteFuture();

  // Set once the prompt is known; with continue_session by the engine thread, which puts the
  // session's tokens before it.
  std::vector<TokenId> prompt;  // Encoded and truncated; not empty.
  bool encoded_here = false;    // The client sent text and is told the ids.
  std::int32_t max_total_tokens = 0;
  std::shared_ptr<const sampling::RequestSampling> sampling;
  std::shared_ptr<const text::StopStrings> stop_strings;  // Null: none.
};

}  // namespace quire::engine
