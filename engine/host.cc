#include "engine/host.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/status.h"
#include "engine/decoder_runner.h"
#include "engine/step_log.h"
#include "engine/system_memory.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/reference/reference_backend.h"

namespace quire::engine {
namespace {

constexpr std::int32_t kMaxThreads = 1024;

// The least that can serve a request: one prompt token and one new one.
constexpr std::int64_t kMinPoolTokens = 2;

// Runs the stages of start-up one after the other and notes how long each took.
class Starter {
 public:
  Starter(const HostOptions& options, OutputSink* sink, const HostProgress& progress, Clock& clock)
      : options_(options), sink_(sink), progress_(progress), clock_(clock) {}

  absl::StatusOr<std::unique_ptr<EngineHost>> Run() {
    QUIRE_RETURN_IF_ERROR(Stage("open model", [this] { return OpenFiles(); }));
    QUIRE_RETURN_IF_ERROR(Stage("load tokenizer", [this] { return LoadText(); }));
    QUIRE_RETURN_IF_ERROR(Stage("start backend", [this] { return StartBackend(); }));
    QUIRE_RETURN_IF_ERROR(SizePool());
    QUIRE_RETURN_IF_ERROR(Stage("pack weights", [this] { return LoadDecoder(); }));
    QUIRE_RETURN_IF_ERROR(Stage("reserve KV blocks", [this] { return ReserveBlocks(); }));
    QUIRE_RETURN_IF_ERROR(Stage("start engine", [this] { return CreateEngine(); }));
    Describe();
    return std::move(host_);
  }

 private:
  template <class Work>
  absl::Status Stage(const std::string& name, Work work) {
    const absl::Time begin = clock_.Now();
    if (progress_) progress_(name, 0, 1);
    QUIRE_RETURN_IF_ERROR(work());
    if (progress_) progress_(name, 1, 1);
    report().stage_seconds.emplace_back(name, absl::ToDoubleSeconds(clock_.Now() - begin));
    return absl::OkStatus();
  }

  HostReport& report() { return host_->report; }
  template <class... Args>
  void Warn(fmt::format_string<Args...> format, Args&&... args) {
    report().warnings.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  absl::Status OpenFiles() {
    QUIRE_ASSIGN_OR_RETURN(files_, model::OpenModel(options_.model_path));
    host_->config = files_->config();
    report().warnings = files_->warnings();
    const std::int32_t limit = host_->config.max_positions;
    if (options_.max_model_len > limit) {
      return InvalidArgument(
          "--max-model-len must be at most {}, the context of this model, got {}", limit,
          options_.max_model_len);
    }
    max_model_len_ = options_.max_model_len > 0 ? options_.max_model_len : limit;
    engine_options_ = options_.engine;
    engine_options_.scheduler.max_model_len = max_model_len_;
    engine_options_.scheduler.sliding_window = host_->config.sliding_window;
    return engine_options_.Validate();
  }

  absl::Status LoadText() {
    QUIRE_ASSIGN_OR_RETURN(host_->tokenizer, files_->LoadTokenizer());
    const text::Tokenizer* tokenizer = host_->tokenizer.get();
    traits_ = {.eos_token_ids = files_->eos_token_ids(),
               .sampling_defaults = files_->sampling_defaults()};
    if (tokenizer == nullptr) {
      Warn("{}: no tokenizer in the model's files, so only token ids are served",
           options_.model_path);
      return absl::OkStatus();
    }
    const auto eos = tokenizer->eos_id();
    auto& ids = traits_.eos_token_ids;
    if (eos.has_value() && std::find(ids.begin(), ids.end(), *eos) == ids.end()) {
      ids.push_back(*eos);
    }
    return LoadChatTemplate();
  }

  absl::Status LoadChatTemplate() {
    if (!options_.chat_template.empty()) {
      QUIRE_ASSIGN_OR_RETURN(chat_template_, text::BuiltinChatTemplate(options_.chat_template));
      return text::CheckControlTokens(*host_->tokenizer, *chat_template_);
    }
    auto found = text::ChatTemplateFor(files_->chat_template());
    if (found.ok()) {
      chat_template_ = *std::move(found);
    } else {
      // Completions work without; chat requests are refused by the engine.
      Warn("chat is off: {}", AsStd(found.status().message()));
    }
    return absl::OkStatus();
  }

  absl::Status StartBackend() {
    const int usable = kernels::cpu::UsableCpus();
    const int threads = options_.threads > 0 ? options_.threads : usable;
    if (threads > usable) {
      Warn(
          "threads {} is above the {} CPUs that this process may use; it will be slower, not "
          "faster",
          threads, usable);
    }
    if (options_.backend == "reference") {
      host_->backend = kernels::NewReferenceBackend();
      return absl::OkStatus();
    }
    QUIRE_ASSIGN_OR_RETURN(host_->backend,
                           kernels::NewCpuBackend({.isa = options_.isa, .threads = threads}));
    return absl::OkStatus();
  }

  absl::Status SizePool() {
    const bool is_f32 = options_.weight_dtype == model::WeightDtype::kF32;
    const KvDtype dtype = options_.kv_dtype.value_or(is_f32 ? KvDtype::kF32 : KvDtype::kF16);
    geometry_ = model::KvGeometryFor(host_->config, options_.block_size, dtype);
    QUIRE_RETURN_IF_ERROR(geometry_.Validate());
    const SystemMemory memory = ReadSystemMemory("/proc", "/sys/fs/cgroup");
    const std::int64_t default_bytes =
        DefaultKvBytes(geometry_, engine_options_.scheduler.max_num_seqs, max_model_len_,
                       SteadyAvailableBytes(memory));
    const auto num_blocks = NumBlocks(options_, geometry_, default_bytes);
    if (!num_blocks.ok()) return AddWeightBytes(num_blocks.status());
    num_blocks_ = *num_blocks;
    const std::int64_t bytes = num_blocks_ * geometry_.bytes_per_block();
    if (memory.available_bytes > 0 && bytes > memory.available_bytes) {
      Warn("the KV blocks may grow to {} bytes, but only {} bytes of memory are available", bytes,
           memory.available_bytes);
    }
    const double share = engine_options_.session_cache_share;
    if (share > 0 && engine_options_.max_session_blocks(num_blocks_) == 0) {
      Warn("--session-cache-share {} of {} blocks is less than one: no sessions are kept", share,
           num_blocks_);
    }
    if (num_blocks_ * geometry_.block_size < LongestContext()) {
      Warn(
          "{} blocks of {} tokens hold less than max-model-len {}: a request that outgrows them "
          "ends early with length",
          num_blocks_, geometry_.block_size, max_model_len_);
    }
    return absl::OkStatus();
  }

  // Tokens that a sequence of max_model_len holds at one time (BlockManager::BlocksForTokens).
  std::int64_t LongestContext() const {
    const block_manager::SlidingWindow window = engine_options_.scheduler.window();
    if (window.tokens == 0) return max_model_len_;
    return std::min<std::int64_t>(max_model_len_, std::int64_t{window.tokens} - 1 +
                                                      window.max_chunk + geometry_.block_size - 1);
  }

  // The pool comes on top of the weights, so a message about its size tells theirs.
  absl::Status AddWeightBytes(const absl::Status& status) const {
    std::int64_t bytes = 0;
    for (const model::TensorInfo& tensor : files_->tensors()) bytes += tensor.bytes;
    return absl::Status(status.code(), fmt::format("{} (the weights take {} bytes beside it)",
                                                   AsStd(status.message()), bytes));
  }

  absl::Status LoadDecoder() {
    decoder_options_ = {.weight_dtype = options_.weight_dtype,
                        .max_batched_tokens = engine_options_.scheduler.max_num_batched_tokens,
                        .max_positions = max_model_len_};
    const auto progress = [this](std::int64_t done, std::int64_t total) {
      if (progress_) progress_("pack weights", done, total);
    };
    QUIRE_ASSIGN_OR_RETURN(
        decoder_, model::Decoder::Load(*files_, *host_->backend, decoder_options_, progress));
    return absl::OkStatus();
  }

  absl::Status ReserveBlocks() {
    report().weight_format = decoder_->weight_format_summary();
    report().weight_bytes = decoder_->weight_bytes();
    report().activation_bytes = decoder_->activation_bytes();
    QUIRE_ASSIGN_OR_RETURN(runner_, DecoderRunner::Create(std::move(decoder_), decoder_options_,
                                                          *host_->backend, geometry_, num_blocks_));
    return absl::OkStatus();
  }

  absl::Status CreateEngine() {
    report().chat_template = chat_template_ ? std::string(chat_template_->name()) : "none";
    if (!options_.step_log.empty()) {
      QUIRE_ASSIGN_OR_RETURN(runner_, LogSteps(std::move(runner_), clock_, options_.step_log));
    }
    QUIRE_ASSIGN_OR_RETURN(host_->engine,
                           Engine::Create(engine_options_, std::move(runner_), host_->tokenizer,
                                          chat_template_, std::move(traits_), sink_, clock_));
    return absl::OkStatus();
  }

  void Describe() {
    const kernels::BackendInfo backend = host_->backend->info();
    HostReport& r = report();
    r.model_name = files_->name();
    r.model_path = options_.model_path;
    r.model_format = files_->format();
    r.backend = backend.name;
    r.isa = backend.isa;
    r.threads = backend.num_threads;
    r.kv_dtype = KvDtypeName(geometry_.k_dtype);
    r.kv_bytes_per_token = geometry_.bytes_per_token();
    r.num_blocks = num_blocks_;
    r.kv_bytes = num_blocks_ * geometry_.bytes_per_block();
    r.block_size = geometry_.block_size;
    r.max_model_len = max_model_len_;
  }

  const HostOptions& options_;
  OutputSink* const sink_;
  const HostProgress& progress_;
  Clock& clock_;

  // Made by the stages, in this order.
  std::unique_ptr<EngineHost> host_ = std::make_unique<EngineHost>();
  std::unique_ptr<model::ModelFiles> files_;
  std::int32_t max_model_len_ = 0;
  EngineOptions engine_options_;
  ModelTraits traits_;
  std::shared_ptr<const text::ChatTemplate> chat_template_;
  KvGeometry geometry_;
  std::int64_t num_blocks_ = 0;
  model::DecoderOptions decoder_options_;
  std::unique_ptr<model::Decoder> decoder_;
  std::unique_ptr<ModelRunner> runner_;
};

}  // namespace

absl::Status HostOptions::Validate() const {
  if (model_path.empty()) return InvalidArgument("model must name a GGUF file or a folder");
  if (backend != "cpu" && backend != "reference") {
    return InvalidArgument("--backend must be cpu or reference, got \"{}\"", backend);
  }
  if (threads < 0 || threads > kMaxThreads) {
    return InvalidArgument("--threads must be in [1, {}], or 0 for the usable CPUs, got {}",
                           kMaxThreads, threads);
  }
  if (block_size < 1 || block_size > 256 ||
      !std::has_single_bit(static_cast<unsigned>(block_size))) {
    return InvalidArgument("--block-size must be a power of two in [1, 256], got {}", block_size);
  }
  if (num_blocks.has_value() && kv_cache_bytes.has_value()) {
    return InvalidArgument("--num-blocks and --kv-cache-memory cannot both be given");
  }
  const std::int64_t min_blocks = (kMinPoolTokens + block_size - 1) / block_size;
  constexpr std::int64_t kMaxBlocks = std::numeric_limits<std::int32_t>::max();
  if (num_blocks.has_value() && (*num_blocks < min_blocks || *num_blocks > kMaxBlocks)) {
    return InvalidArgument("--num-blocks must be in [{}, {}] with --block-size {}, got {}",
                           min_blocks, kMaxBlocks, block_size, *num_blocks);
  }
  if (kv_cache_bytes.has_value() && *kv_cache_bytes < 1) {
    return InvalidArgument("--kv-cache-memory must be positive, got {}", *kv_cache_bytes);
  }
  if (max_model_len < 0 || max_model_len == 1) {
    return InvalidArgument("--max-model-len must be at least 2, or 0 for the model's own, got {}",
                           max_model_len);
  }
  return engine.Validate();
}

std::int64_t DefaultKvBytes(const KvGeometry& geometry, std::int32_t max_num_seqs,
                            std::int32_t max_model_len, std::int64_t available_memory_bytes) {
  const std::int64_t useful =
      max_num_seqs * geometry.blocks_for_tokens(max_model_len) * geometry.bytes_per_block();
  return std::min(available_memory_bytes / 4, useful);
}

absl::StatusOr<std::int64_t> NumBlocks(const HostOptions& options, const KvGeometry& geometry,
                                       std::int64_t default_bytes) {
  if (options.num_blocks.has_value()) return *options.num_blocks;
  const std::int64_t budget = options.kv_cache_bytes.value_or(default_bytes);
  const std::int64_t smallest =
      geometry.blocks_for_tokens(kMinPoolTokens) * geometry.bytes_per_block();
  if (budget < smallest) {
    return InvalidArgument(
        "--kv-cache-memory of {} bytes{} is too small: a block of {} tokens takes {} bytes and the "
        "smallest pool that works takes {}",
        budget, options.kv_cache_bytes ? "" : " (the default for this machine)",
        geometry.block_size, geometry.bytes_per_block(), smallest);
  }
  return std::min<std::int64_t>(budget / geometry.bytes_per_block(),
                                std::numeric_limits<std::int32_t>::max());
}

absl::StatusOr<std::unique_ptr<EngineHost>> StartEngine(const HostOptions& options,
                                                        OutputSink* sink,
                                                        const HostProgress& progress,
                                                        Clock& clock) {
  QUIRE_RETURN_IF_ERROR(options.Validate());
  return Starter(options, sink, progress, clock).Run();
}

}  // namespace quire::engine
