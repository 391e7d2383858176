#include "tests/fakes/scripted_engine.h"

#include "base/check.h"

namespace quire::fakes {
namespace {

constexpr std::uint64_t kEmptyDigest = 0xCBF29CE484222325;  // FNV-1a's offset basis.

std::uint64_t Extend(std::uint64_t digest, TokenId token) {
  const std::uint64_t mixed = (digest ^ static_cast<std::uint32_t>(token)) * 0x100000001B3;
  return mixed ^ (mixed >> 29);
}

}  // namespace

std::uint64_t PrefixDigest(std::span<const TokenId> tokens) {
  std::uint64_t digest = kEmptyDigest;
  for (const TokenId token : tokens) digest = Extend(digest, token);
  return digest;
}

TokenId NextToken(std::uint64_t digest, std::int32_t branch) {
  return static_cast<TokenId>(Extend(digest, -1 - branch) % 1000003);
}

std::vector<TokenId> ExpectedOutput(std::span<const TokenId> prompt, std::int32_t branch,
                                    std::int32_t count) {
  std::vector<TokenId> output;
  std::uint64_t digest = PrefixDigest(prompt);
  for (std::int32_t i = 0; i < count; ++i) {
    output.push_back(NextToken(digest, branch));
    digest = Extend(digest, output.back());
  }
  return output;
}

ScriptedEngine::ScriptedEngine(std::int64_t capacity, std::int32_t block_size, std::int32_t window)
    : block_size_(block_size),
      window_(window),
      slots_(static_cast<std::size_t>(capacity * block_size)) {}

ScriptedEngine::Slot& ScriptedEngine::SlotAt(const scheduler::ScheduledSequence& sequence,
                                             std::int32_t position) {
  const std::int32_t offset = position - sequence.first_position;
  const auto index = static_cast<std::size_t>(offset / block_size_);
  QUIRE_CHECK(offset >= 0 && index < sequence.block_table.size())
      << "position " << position << " of sequence " << sequence.id.value() << " has no block";
  const std::int64_t block = sequence.block_table[index].value();
  return slots_[static_cast<std::size_t>(block * block_size_ + offset % block_size_)];
}

scheduler::StepResult ScriptedEngine::Run(const scheduler::StepPlan& plan) {
  for (const scheduler::BlockCopyOrder& copy : plan.copies) {
    for (std::int32_t i = 0; i < block_size_; ++i) {
      slots_[static_cast<std::size_t>(copy.target.value() * block_size_ + i)] =
          slots_[static_cast<std::size_t>(copy.source.value() * block_size_ + i)];
    }
  }
  scheduler::StepResult result;
  std::int32_t num_tokens = 0;
  for (const scheduler::ScheduledSequence& sequence : plan.scheduled) {
    num_tokens += sequence.num_tokens;
    const std::uint64_t digest = Write(sequence);
    if (!sequence.samples) continue;
    Sample(sequence.id, digest, &result);
    for (const SequenceId fork : sequence.forks) Sample(fork, digest, &result);
  }
  QUIRE_CHECK(num_tokens == plan.num_tokens);
  ++num_steps_;
  return result;
}

std::uint64_t ScriptedEngine::Write(const scheduler::ScheduledSequence& sequence) {
  QUIRE_CHECK(sequence.num_tokens >= 1);
  std::uint64_t digest = kEmptyDigest;
  for (std::int32_t position = 0; position < sequence.first_token; ++position) {
    const TokenId token = sequence.tokens[static_cast<std::size_t>(position)];
    digest = Extend(digest, token);
    if (window_ > 0 && position <= sequence.first_token - window_) continue;  // Out of sight.
    const Slot& slot = SlotAt(sequence, position);
    QUIRE_CHECK(slot.token == token && slot.digest == digest)
        << "sequence " << sequence.id.value() << " reads foreign content at " << position;
    QUIRE_CHECK(slot.written_in_step < num_steps_) << "a slot is read in the step that writes it";
  }
  for (std::int32_t i = 0; i < sequence.num_tokens; ++i) {
    const std::int32_t position = sequence.first_token + i;
    const TokenId token = sequence.tokens[static_cast<std::size_t>(position)];
    digest = Extend(digest, token);
    Slot& slot = SlotAt(sequence, position);
    QUIRE_CHECK(slot.written_in_step < num_steps_) << "a slot has two writers in one step";
    slot = {token, digest, num_steps_};
  }
  return digest;
}

void ScriptedEngine::Sample(SequenceId id, std::uint64_t digest, scheduler::StepResult* result) {
  const Job job = jobs_[id];
  std::vector<TokenId>& output = outputs_[id];
  output.push_back(NextToken(digest, job.branch));
  token_steps_[id].push_back(num_steps_);
  result->sequences.push_back({id, {output.back()}, finished(id)});
}

bool ScriptedEngine::finished(SequenceId id) const {
  const auto output = outputs_.find(id);
  const auto job = jobs_.find(id);
  const std::int32_t wanted = job == jobs_.end() ? 1 : job->second.num_output_tokens;
  return output != outputs_.end() && static_cast<std::int32_t>(output->second.size()) >= wanted;
}

}  // namespace quire::fakes
