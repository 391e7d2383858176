// quire demo: eight requests at once, and what they do to the KV blocks.
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/status.h"
#include "cli/block_picture.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/stream_view.h"
#include "cli/table.h"
#include "server/client.h"

namespace quire::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kSystemPrompt =
    "You are Quire's guide, a patient teacher who explains things to curious people of any age. "
    "Answer in plain words and in at most three short sentences. Start with the answer itself, "
    "then "
    "give one reason or one example that a reader can picture. Do not repeat the question, do not "
    "apologise, and do not talk about yourself. If a question has several answers, choose the one "
    "that most people would find useful. Numbers are written with digits, names are spelled out in "
    "full, and units are metric. When something is uncertain, say so in one short clause and go "
    "on. "
    "Keep a friendly tone, avoid lists, avoid headings, and end with a full stop.";

constexpr std::array<const char*, 8> kQuestions = {
    "Why is the sky blue?",           "What is a prime number?",  "How do bees make honey?",
    "Who wrote Romeo and Juliet?",    "What does a compiler do?", "Why do cats purr?",
    "What is the capital of France?", "How does a rainbow form?",
};
constexpr std::size_t kNumRequests = kQuestions.size();
constexpr std::size_t kMapCells = 128;
constexpr absl::Duration kDrawEvery = absl::Milliseconds(50);
constexpr absl::Duration kMapEvery = absl::Milliseconds(100);

struct DemoFlags {
  std::string server;
  std::int32_t max_tokens = 48;
  bool json = false;
};

// One request as its reader saw it.
struct Answer {
  absl::Time sent, first_token, last_token;
  v1::Finished finished;
  std::string text;
  std::string new_text;  // Not yet shown.
  absl::Status status;
  bool done = false;
  bool shown_as_done = false;

  std::int32_t generated() const { return finished.usage().completion_tokens(); }
  double ttft_ms() const { return absl::ToDoubleMilliseconds(first_token - sent); }
  // After the first; none if all came at once.
  std::optional<double> tokens_per_second() const {
    const double seconds = absl::ToDoubleSeconds(last_token - first_token);
    if (seconds <= 0) return std::nullopt;
    return (generated() - 1) / seconds;
  }
};

// What the client's thread writes and the command's thread shows. Shared with the callbacks.
struct DemoState {
  absl::Mutex mutex;
  std::vector<Answer> answers ABSL_GUARDED_BY(mutex) = std::vector<Answer>(kNumRequests);
  std::size_t num_done ABSL_GUARDED_BY(mutex) = 0;

  bool AllDone() const ABSL_SHARED_LOCKS_REQUIRED(mutex) { return num_done == kNumRequests; }
};

v1::GenerateRequest MakeRequest(const std::string& question, std::int32_t max_tokens,
                                bool has_chat_template) {
  v1::GenerateRequest request;
  if (has_chat_template) {
    auto* system = request.mutable_chat()->add_messages();
    system->set_role("system");
    system->set_content(kSystemPrompt);
    auto* user = request.mutable_chat()->add_messages();
    user->set_role("user");
    user->set_content(question);
  } else {
    request.mutable_text()->set_text(fmt::format("{}\n\n{}\n", kSystemPrompt, question));
  }
  request.mutable_sampling()->set_max_tokens(max_tokens);
  request.mutable_sampling()->set_temperature(0);
  return request;
}

void Send(server::Client& client, const v1::GenerateRequest& request, std::size_t index,
          const std::shared_ptr<DemoState>& state) {
  {
    absl::MutexLock lock(&state->mutex);
    state->answers[index].sent = Clock::Real().Now();
  }
  client.Generate(
      request, {},
      [state, index](const v1::GenerateResponse& response) {
        const absl::Time now = Clock::Real().Now();
        absl::MutexLock lock(&state->mutex);
        Answer& answer = state->answers[index];
        if (response.has_delta() && response.delta().token_ids_size() > 0) {
          if (answer.first_token == absl::Time()) answer.first_token = now;
          answer.last_token = now;
          answer.new_text += response.delta().text();
        }
        if (response.has_finished()) answer.finished = response.finished();
      },
      [state, index](const server::CallOutcome& outcome) {
        absl::MutexLock lock(&state->mutex);
        state->answers[index].status = outcome.status;
        state->answers[index].done = true;
        ++state->num_done;
      });
}

// Moves what is new to the view; returns whether everything is done.
bool ShowNews(DemoState& state, StreamView* view) {
  absl::MutexLock lock(&state.mutex);
  state.mutex.AwaitWithTimeout(absl::Condition(&state, &DemoState::AllDone), kDrawEvery);
  for (std::size_t i = 0; i < kNumRequests; ++i) {
    Answer& answer = state.answers[i];
    const std::string news = std::exchange(answer.new_text, "");
    answer.text += news;
    if (view == nullptr) continue;
    view->Append(i, news);
    if (answer.done && !std::exchange(answer.shown_as_done, true)) view->Finish(i);
  }
  if (view != nullptr) view->Draw();
  return state.AllDone();
}

struct DemoResult {
  v1::GetBlockMapResponse before, peak, after;
  std::vector<Answer> answers;
  absl::Duration duration;
};

absl::StatusOr<DemoResult> RunDemo(server::Client& client, std::int32_t max_tokens,
                                   bool has_chat_template, StreamView* view) {
  DemoResult result;
  QUIRE_ASSIGN_OR_RETURN(result.before, client.GetBlockMap());
  // One short request leaves the blocks of the system prompt in the cache.
  const server::CallOutcome first = client.GenerateAndWait(
      MakeRequest("Hello!", 1, has_chat_template), {}, [](const v1::GenerateResponse&) {});
  QUIRE_RETURN_IF_ERROR(first.status);

  const auto state = std::make_shared<DemoState>();
  const absl::Time start = Clock::Real().Now();
  for (std::size_t i = 0; i < kNumRequests; ++i) {
    Send(client, MakeRequest(kQuestions[i], max_tokens, has_chat_template), i, state);
  }
  result.peak = result.before;
  absl::Time next_map = start;
  while (!ShowNews(*state, view)) {
    if (Clock::Real().Now() < next_map) continue;
    next_map = Clock::Real().Now() + kMapEvery;
    auto now = client.GetBlockMap();
    if (!now.ok()) continue;  // A busy server may answer late; the next moment will do.
    if (now->stats().logical_blocks() >= result.peak.stats().logical_blocks()) {
      result.peak = *std::move(now);
    }
  }
  result.duration = Clock::Real().Now() - start;
  QUIRE_ASSIGN_OR_RETURN(result.after, client.GetBlockMap());
  absl::MutexLock lock(&state->mutex);
  result.answers = state->answers;
  return result;
}

// --- Showing ----------------------------------------------------------------------------------

void PrintAnswers(const DemoResult& result, std::ostream& out) {
  Table table({{"", Align::kRight},
               {"question"},
               {"prompt", Align::kRight},
               {"cached", Align::kRight},
               {"generated", Align::kRight},
               {"TTFT", Align::kRight},
               {"tokens/s", Align::kRight}});
  std::int64_t total = 0;
  for (std::size_t i = 0; i < kNumRequests; ++i) {
    const Answer& answer = result.answers[i];
    const v1::Usage& usage = answer.finished.usage();
    const std::optional<double> speed = answer.tokens_per_second();
    total += answer.generated();
    table.AddRow({std::to_string(i), kQuestions[i], std::to_string(usage.prompt_tokens()),
                  std::to_string(usage.cached_tokens()), std::to_string(answer.generated()),
                  fmt::format("{:.0f} ms", answer.ttft_ms()),
                  speed ? fmt::format("{:.1f}", *speed) : "-"});
  }
  table.Print(out);
  const double seconds = absl::ToDoubleSeconds(result.duration);
  out << fmt::format("{} tokens in {:.2f} s: {:.1f} tokens/s over all requests.\n", total, seconds,
                     static_cast<double>(total) / seconds);
}

void PrintPool(const DemoResult& result, Color color, std::ostream& out) {
  const auto per_cell =
      BlocksPerCell(static_cast<std::size_t>(result.before.states_size()), kMapCells);
  out << fmt::format("KV blocks of {} tokens ({})\n", result.before.stats().block_size(),
                     BlockLegend(per_cell, color));
  const auto print = [&](const char* when, const v1::GetBlockMapResponse& map) {
    const v1::BlockStats& blocks = map.stats();
    out << fmt::format("{}\n  {}\n  {} active, {} cached, {} free", when,
                       DrawBlocks(map, kMapCells, color), blocks.active(), blocks.cached(),
                       blocks.free());
    if (blocks.active() > 0) {
      const std::int64_t slots = blocks.active() * blocks.block_size();
      out << fmt::format(
          "; {} of {} active slots useful ({:.1f} %); tables name {} blocks", blocks.useful_slots(),
          slots, 100.0 * static_cast<double>(blocks.useful_slots()) / static_cast<double>(slots),
          blocks.logical_blocks());
    }
    out << '\n';
  };
  print("before", result.before);
  print("during (the fullest moment seen)", result.peak);
  print("after", result.after);
}

ordered_json PoolJson(const v1::GetBlockMapResponse& map) {
  const v1::BlockStats& blocks = map.stats();
  return {{"capacity", blocks.capacity()},
          {"block_size", blocks.block_size()},
          {"active", blocks.active()},
          {"cached", blocks.cached()},
          {"free", blocks.free()},
          {"useful_slots", blocks.useful_slots()},
          {"logical_blocks", blocks.logical_blocks()},
          {"picture", DrawBlocks(map, kMapCells, Color::kOff)}};
}

void PrintJson(const DemoResult& result, std::ostream& out) {
  ordered_json object;
  for (std::size_t i = 0; i < kNumRequests; ++i) {
    const Answer& answer = result.answers[i];
    const v1::Usage& usage = answer.finished.usage();
    object["requests"].push_back({{"question", kQuestions[i]},
                                  {"text", answer.text},
                                  {"prompt_tokens", usage.prompt_tokens()},
                                  {"cached_tokens", usage.cached_tokens()},
                                  {"completion_tokens", usage.completion_tokens()},
                                  {"ttft_ms", answer.ttft_ms()}});
    if (const auto speed = answer.tokens_per_second()) {
      object["requests"].back()["tokens_per_second"] = *speed;
    }
  }
  object["duration_s"] = absl::ToDoubleSeconds(result.duration);
  object["blocks"] = {{"before", PoolJson(result.before)},
                      {"during", PoolJson(result.peak)},
                      {"after", PoolJson(result.after)}};
  out << object.dump(2) << std::endl;
}

ExitCode Demo(const DemoFlags& flags, const CommandContext& context) {
  const Console& console = context.console;
  const auto client = server::Client::Connect({.target = flags.server});
  if (!client.ok()) return console.Fail(client.status());
  const auto model = (*client)->GetModelInfo();
  if (!model.ok()) return console.Fail(model.status());

  std::unique_ptr<StreamView> view;
  if (!flags.json) {
    console.out << fmt::format(
        "{}: {} requests at once that share a system prompt. One short request goes first, so that "
        "the blocks of that prompt are in the cache.\n\n",
        model->served_model_name(), kNumRequests);
    view = console.out_is_terminal ? NewTerminalView(console.out, kNumRequests, TerminalWidth())
                                   : NewPlainView(console.out, kNumRequests);
  }
  const auto result =
      RunDemo(**client, flags.max_tokens, !model->chat_template().empty(), view.get());
  if (!result.ok()) return console.Fail(result.status());
  if (flags.json) {
    PrintJson(*result, console.out);
  } else {
    const bool colored = console.out_is_terminal && context.environment.no_color.empty();
    console.out << '\n';
    PrintAnswers(*result, console.out);
    console.out << '\n';
    PrintPool(*result, colored ? Color::kOn : Color::kOff, console.out);
  }
  ExitCode code = ExitCode::kOk;
  for (std::size_t i = 0; i < kNumRequests; ++i) {
    const absl::Status& status = result->answers[i].status;
    if (status.ok()) continue;
    code = console.Fail(Aborted("request {}: {}", i, status.ToString()));
  }
  return code;
}

}  // namespace

void AddDemoCommand(CLI::App& app, const CommandContext& context, Action* action) {
  auto flags = std::make_shared<DemoFlags>();
  auto* demo = app.add_subcommand("demo", "Eight requests at once, and their KV blocks");
  AddServer(*demo, &flags->server, "a running quire serve")->required();
  AddInt(*demo, "--max-tokens", &flags->max_tokens, {1, 1 << 20}, "of an answer");
  AddSwitch(*demo, "--json", &flags->json, "print one JSON object at the end");
  demo->footer(
      "Streams eight answers side by side, then shows a table and the block pool before, during\n"
      "and after.\n\n"
      "Example:\n"
      "  quire serve --model smollm2-135m --num-blocks 128 &\n"
      "  quire demo --server 127.0.0.1:50051");
  demo->callback([=] { *action = [=] { return Demo(*flags, context); }; });
}

}  // namespace quire::cli
