#include "tests/scheduler/scenario.h"

#include <charconv>
#include <optional>
#include <utility>

#include "base/status.h"

namespace quire::scheduler {
namespace {

std::string_view Trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// The part before the first `separator`, and the rest.
std::pair<std::string_view, std::string_view> Cut(std::string_view text, char separator) {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) return {Trim(text), {}};
  return {Trim(text.substr(0, at)), Trim(text.substr(at + 1))};
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!Trim(text).empty()) {
    const auto [part, rest] = Cut(text, separator);
    parts.push_back(part);
    text = rest;
  }
  return parts;
}

absl::StatusOr<double> ParseNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return InvalidArgument("'{}' is no number", text);
  }
  return value;
}

// "1-4 9": the tokens 1, 2, 3, 4, 9.
absl::StatusOr<std::vector<TokenId>> ParseTokens(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const std::string_view part : Split(text, ' ')) {
    const auto [first_text, last_text] = Cut(part, '-');
    QUIRE_ASSIGN_OR_RETURN(const double first, ParseNumber(first_text));
    double last = first;
    if (!last_text.empty()) {
      QUIRE_ASSIGN_OR_RETURN(last, ParseNumber(last_text));
    }
    for (auto token = static_cast<TokenId>(first); token <= static_cast<TokenId>(last); ++token) {
      tokens.push_back(token);
    }
  }
  return tokens;
}

const char* ReasonName(TerminalReason reason) {
  switch (reason) {
    case TerminalReason::kKvCapacity:
      return "kv_capacity";
    case TerminalReason::kDeadlineExceeded:
      return "deadline_exceeded";
    case TerminalReason::kNoProgress:
      return "no_progress";
  }
  return "unknown";
}

}  // namespace

Scenario ParseScenario(std::string_view text) {
  Scenario scenario;
  bool in_title = true;
  int line_number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    const std::string_view content = Trim(line);
    if (in_title) {
      if (content.empty() && !scenario.title.empty()) in_title = false;
      if (!content.empty()) scenario.title += std::string(content) + "\n";
    } else if (content.empty() || content.front() == '#') {
      continue;
    } else if (line.front() == ' ') {
      if (!scenario.commands.empty()) scenario.commands.back().expected.emplace_back(content);
    } else {
      scenario.commands.push_back({line_number, std::string(content), {}});
    }
  }
  return scenario;
}

absl::StatusOr<std::vector<std::string>> ScenarioRunner::Run(std::string_view command) {
  const auto [verb, rest] = Cut(command, ' ');
  absl::StatusOr<Lines> lines = Dispatch(verb, rest);
  if (lines.ok() && scheduler_ != nullptr) scheduler_->CheckInvariants();
  return lines;
}

absl::StatusOr<ScenarioRunner::Lines> ScenarioRunner::Dispatch(std::string_view verb,
                                                               std::string_view rest) {
  if (verb == "pool") {
    QUIRE_RETURN_IF_ERROR(SetPool(rest));
    return Lines();
  }
  if (verb == "scheduler") {
    QUIRE_RETURN_IF_ERROR(SetScheduler(rest));
    return Lines();
  }
  if (scheduler_ == nullptr) Start();
  if (verb == "add") return Add(rest);
  if (verb == "step") return Step();
  if (verb == "steps") return Steps(rest);
  if (verb == "fail") return Fail();
  if (verb == "reset") {
    return Lines{fmt::format("freed {}", blocks_->ResetPrefixCache()), DescribePool()};
  }
  if (verb == "cancel") {
    const auto id = ids_.find(rest);
    if (id == ids_.end()) return InvalidArgument("there is no '{}'", rest);
    scheduler_->Cancel(id->second);
    return Lines{DescribePool()};
  }
  if (verb == "clock") {
    QUIRE_ASSIGN_OR_RETURN(const double seconds, ParseNumber(rest));
    now_ = absl::UnixEpoch() + absl::Seconds(seconds);
    return Lines();
  }
  if (verb == "took") {
    QUIRE_ASSIGN_OR_RETURN(const double milliseconds, ParseNumber(rest));
    scheduler_->StepTook(absl::Milliseconds(milliseconds));
    return Lines{fmt::format("prefill cap {}", scheduler_->stats().prefill_cap)};
  }
  if (verb == "waiting") return DescribeWaiting();
  if (verb == "hits") {
    const SchedulerStats s = scheduler_->stats();
    return Lines{fmt::format("first time {} of {}, {} of them in flight", s.prefix_hit_tokens,
                             s.prefix_query_tokens, s.prefix_hit_tokens_in_flight),
                 fmt::format("leased by the session {}, after preemption {}, by forks {}",
                             s.prefix_hit_tokens_session, s.prefix_hit_tokens_after_preemption,
                             s.fork_shared_tokens),
                 fmt::format("{} waited for a prefix in flight, {} gave up", s.in_flight_waits,
                             s.in_flight_timeouts)};
  }
  if (verb == "misses") {
    const PrefixMisses m = scheduler_->stats().prefix_misses;
    return Lines{fmt::format("never seen {}, evicted {}, other salt {}", m.never_seen, m.evicted,
                             m.other_salt),
                 fmt::format("partial block {}, not finished {}, bypassed {}", m.partial_block,
                             m.not_finished, m.bypassed)};
  }
  if (verb == "release") {
    // "release s" or "release s, salt x".
    const auto [name, salt] = Cut(rest, ',');
    const std::string_view salt_value = Cut(salt, ' ').second;
    const bool existed = blocks_->EndSession(
        {.id = std::string(name), .salt = block_manager::CacheSalt::ForRequest(salt_value)});
    return Lines{existed ? "released" : "no such session", DescribePool()};
  }
  if (verb == "stats") {
    const SchedulerStats s = scheduler_->stats();
    return Lines{
        fmt::format("running {}, waiting {} ({} tokens)", s.num_running, s.num_waiting,
                    s.num_waiting_tokens),
        fmt::format("prefix queries {}, hits {}, hits after preemption {}", s.prefix_query_tokens,
                    s.prefix_hit_tokens, s.prefix_hit_tokens_after_preemption),
        fmt::format("preemptions {}, recomputed {}", s.num_preemptions, s.recomputed_tokens),
        fmt::format("prefill {}, decode {}, steps {}", s.scheduled_prefill_tokens,
                    s.scheduled_decode_tokens, s.num_steps)};
  }
  return InvalidArgument("there is no command '{}'", verb);
}

// "8 blocks of 4, no prefix caching, session_share 0.5, session_ttl 60"
absl::Status ScenarioRunner::SetPool(std::string_view rest) {
  const auto [size, options] = Cut(rest, ',');
  const std::vector<std::string_view> words = Split(size, ' ');
  if (words.size() != 4 || words[1] != "blocks" || words[2] != "of") {
    return InvalidArgument("'{}' is no pool", size);
  }
  QUIRE_ASSIGN_OR_RETURN(const double num_blocks, ParseNumber(words[0]));
  QUIRE_ASSIGN_OR_RETURN(const double block_size, ParseNumber(words[3]));
  block_options_.num_blocks = static_cast<std::int64_t>(num_blocks);
  block_options_.block_size = static_cast<std::int32_t>(block_size);
  for (const std::string_view option : Split(options, ',')) {
    if (option == "no prefix caching") {
      block_options_.enable_prefix_caching = false;
      continue;
    }
    const auto [name, value] = Cut(option, ' ');
    QUIRE_ASSIGN_OR_RETURN(const double number, ParseNumber(value));
    if (name == "session_share") {
      block_options_.session_share = number;
    } else if (name == "session_ttl") {
      block_options_.session_ttl = absl::Seconds(number);
    } else {
      return InvalidArgument("a pool has no '{}'", name);
    }
  }
  return block_options_.Validate();
}

absl::Status ScenarioRunner::SetScheduler(std::string_view rest) {
  const std::map<std::string_view, std::int32_t*> fields = {
      {"max_num_seqs", &options_.max_num_seqs},
      {"max_num_batched_tokens", &options_.max_num_batched_tokens},
      {"max_prefill_tokens", &options_.max_prefill_tokens},
      {"max_model_len", &options_.max_model_len},
      {"max_overtakes", &options_.max_overtakes},
      {"max_in_flight_steps", &options_.max_in_flight_steps},
      {"client_quantum", &options_.client_quantum},
      {"sliding_window", &options_.sliding_window}};
  for (const std::string_view setting : Split(rest, ',')) {
    const auto [name, value] = Cut(setting, ' ');
    if (name == "policy") {
      options_.policy = value == "priority" ? Policy::kPriority : Policy::kFcfs;
      continue;
    }
    QUIRE_ASSIGN_OR_RETURN(const double number, ParseNumber(value));
    if (name == "watermark") {
      options_.watermark = number;
    } else if (name == "target_itl_ms") {
      options_.target_itl = absl::Milliseconds(number);
    } else if (const auto field = fields.find(name); field != fields.end()) {
      *field->second = static_cast<std::int32_t>(number);
    } else {
      return InvalidArgument("there is no option '{}'", name);
    }
  }
  return options_.Validate();
}

void ScenarioRunner::Start() {
  blocks_ = std::make_unique<block_manager::BlockManager>(block_options_);
  scheduler_ = std::make_unique<Scheduler>(options_, blocks_.get());
  engine_ = std::make_unique<fakes::ScriptedEngine>(
      block_options_.num_blocks, block_options_.block_size, options_.sliding_window);
}

// "A: prompt 1-9, output 2, priority 1, n 2, deadline 5, salt x, bypass, client c, session s,
// reserve 32"
absl::StatusOr<ScenarioRunner::Lines> ScenarioRunner::Add(std::string_view rest) {
  const auto [name, settings] = Cut(rest, ':');
  NewSequence request;
  std::int32_t num_outputs = 1, num_branches = 1;
  std::string session;
  for (const std::string_view setting : Split(settings, ',')) {
    const auto [key, value] = Cut(setting, ' ');
    if (key == "prompt") {
      QUIRE_ASSIGN_OR_RETURN(request.prompt, ParseTokens(value));
      continue;
    }
    if (key == "salt") {
      request.salt = block_manager::CacheSalt::ForRequest(value);
      continue;
    }
    if (key == "session") {
      session = std::string(value);
      continue;
    }
    if (key == "client") {
      request.client_id = std::string(value);
      continue;
    }
    if (key == "bypass") {
      request.bypass_prefix_cache = true;
      continue;
    }
    QUIRE_ASSIGN_OR_RETURN(const double number, ParseNumber(value));
    if (key == "output") {
      num_outputs = static_cast<std::int32_t>(number);
    } else if (key == "n") {
      num_branches = static_cast<std::int32_t>(number);
    } else if (key == "reserve") {
      request.reserve_tokens = static_cast<std::int32_t>(number);
    } else if (key == "priority") {
      request.priority = static_cast<std::int32_t>(number);
    } else if (key == "deadline") {
      request.deadline = absl::UnixEpoch() + absl::Seconds(number);
    } else {
      return InvalidArgument("there is no setting '{}'", key);
    }
  }
  if (!session.empty()) request.session = {.id = session, .salt = request.salt};
  const auto num_prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
  const absl::Status fits = scheduler_->CheckFits(num_prompt_tokens, num_branches);
  if (!fits.ok()) return Lines{"refused: " + std::string(AsStd(fits.message()))};

  for (std::int32_t branch = 0; branch < num_branches; ++branch) {
    const SequenceId id{ids_.size() + 1};
    const std::string branch_name =
        branch == 0 ? std::string(name) : fmt::format("{}.{}", name, branch);
    ids_[branch_name] = id;
    branches_[id] = {branch_name, request.prompt, branch};
    engine_->SetJob(id, {.branch = branch, .num_output_tokens = num_outputs});
    if (branch == 0) {
      request.id = id;
    } else {
      request.forks.push_back(id);
    }
  }
  request.max_total_tokens = num_prompt_tokens + num_outputs;
  request.arrival = now_;
  scheduler_->Add(std::move(request));
  return Lines();
}

ScenarioRunner::Lines ScenarioRunner::Describe(const StepPlan& plan) const {
  Lines lines;
  for (const Termination& t : plan.terminated) {
    lines.push_back(fmt::format("end {}: {}", Name(t.id), ReasonName(t.reason)));
  }
  for (const SequenceId id : plan.preempted) lines.push_back("preempt " + Name(id));
  for (const Admission& admission : plan.admitted) {
    lines.push_back(
        fmt::format("admit {}, {} cached", Name(admission.id), admission.num_cached_tokens));
  }
  for (const BlockCopyOrder& copy : plan.copies) {
    lines.push_back(fmt::format("copy {} to {}", copy.source.value(), copy.target.value()));
  }
  for (const ScheduledSequence& s : plan.scheduled) {
    std::string line = fmt::format("run {} {}", Name(s.id), s.first_token);
    if (s.num_tokens > 1) line += fmt::format("-{}", s.first_token + s.num_tokens - 1);
    line += " in";
    for (const BlockId block : s.block_table) line += fmt::format(" {}", block.value());
    if (s.samples) line += ", samples";
    for (const SequenceId fork : s.forks) line += ", forks " + Name(fork);
    lines.push_back(std::move(line));
  }
  return lines;
}

// "2 blocks, 1 turn; the oldest for 3 s"
ScenarioRunner::Lines ScenarioRunner::DescribeWaiting() const {
  const SchedulerStats stats = scheduler_->stats();
  const WaitingBecause& because = stats.waiting_because;
  std::string line;
  for (const auto& [name, count] :
       {std::pair("slots", because.slots), std::pair("blocks", because.blocks),
        std::pair("watermark", because.watermark), std::pair("turn", because.turn),
        std::pair("prefix in flight", because.prefix_in_flight),
        std::pair("budget", because.budget)}) {
    if (count > 0) line += fmt::format("{}{} {}", line.empty() ? "" : ", ", count, name);
  }
  if (line.empty()) return {"nobody"};
  return {line + fmt::format("; the oldest for {} s",
                             absl::ToDoubleSeconds(now_ - stats.oldest_waiting_arrival))};
}

std::string ScenarioRunner::DescribePool() const {
  const block_manager::BlockStats stats = blocks_->stats();
  const std::string leased =
      stats.leased > 0 ? fmt::format(" ({} leased)", stats.leased) : std::string();
  return fmt::format("pool {} active, {} cached{}, {} free", stats.active, stats.cached, leased,
                     stats.free);
}

ScenarioRunner::Lines ScenarioRunner::Step() {
  const StepPlan& plan = scheduler_->Schedule(now_);
  Lines lines = Describe(plan);
  const StepResult result = engine_->Run(plan);
  scheduler_->Apply(result);
  for (const SequenceResult& sequence : result.sequences) {
    if (!sequence.finished) continue;
    const Branch& branch = branches_.at(sequence.id);
    const std::vector<TokenId>& output = engine_->output(sequence.id);
    const bool is_right = output == fakes::ExpectedOutput(branch.prompt, branch.index,
                                                          static_cast<std::int32_t>(output.size()));
    lines.push_back(fmt::format("finish {}{}", branch.name, is_right ? "" : " WITH WRONG TOKENS"));
  }
  lines.push_back(DescribePool());
  return lines;
}

// "5" runs five steps, "to the end" runs until nothing is left; only the end is described.
absl::StatusOr<ScenarioRunner::Lines> ScenarioRunner::Steps(std::string_view rest) {
  constexpr int kMaxSteps = 10'000;
  int count = kMaxSteps;
  if (rest != "to the end") {
    QUIRE_ASSIGN_OR_RETURN(const double number, ParseNumber(rest));
    count = static_cast<int>(number);
  }
  int step = 0;
  for (; step < count && scheduler_->has_work(); ++step) {
    for (const std::string& line : Step()) {
      if (line.find("WRONG") != std::string::npos) return Internal("{}", line);
    }
  }
  if (step == kMaxSteps) return Internal("no end after {} steps", step);
  const SchedulerStats stats = scheduler_->stats();
  return Lines{fmt::format("{} steps, {} preemptions since start", step, stats.num_preemptions),
               DescribePool()};
}

ScenarioRunner::Lines ScenarioRunner::Fail() {
  Lines lines = Describe(scheduler_->Schedule(now_));
  for (const SequenceId id : scheduler_->Abandon()) lines.push_back("lost " + Name(id));
  lines.push_back(DescribePool());
  return lines;
}

absl::StatusOr<std::string> RewriteScenario(std::string_view text) {
  ScenarioRunner runner;
  std::string result;
  bool in_title = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const bool is_command =
        !in_title && !line.empty() && line.front() != ' ' && line.front() != '#';
    const bool is_expectation = !in_title && !line.empty() && line.front() == ' ';
    if (in_title && Trim(line).empty()) in_title = false;
    if (is_expectation) continue;
    result += line + "\n";
    if (!is_command) continue;
    QUIRE_ASSIGN_OR_RETURN(const std::vector<std::string> lines, runner.Run(Trim(line)));
    for (const std::string& actual : lines) result += "  " + actual + "\n";
  }
  return result;
}

}  // namespace quire::scheduler
